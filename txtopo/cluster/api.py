"""The HTTP API of a nimbus: JSON, on Storm's paths where Storm has them.

Requests that change something, and those for code, need the header ``Authorization: Bearer TOKEN``.

======  ==========================================  ======================================================
method  path                                        answer
======  ==========================================  ======================================================
GET     /health                                     ``{"status": "ok", "isLeader": bool}``; 503 while ZooKeeper is away
GET     /metrics                                    Prometheus' text format
GET     /api/v1/leader                              ``{"leader": "HOST:PORT" or null, "address": "HOST:PORT"}``
GET     /api/v1/cluster/summary                     CLUSTER
GET     /api/v1/nimbus/summary                      ``{"nimbuses": [NIMBUS …]}``
GET     /api/v1/supervisor/summary                  ``{"supervisors": [SUPERVISOR …]}``
GET     /api/v1/topology/summary                    ``{"topologies": [TOPOLOGY …]}``
GET     /api/v1/topology/ID                         TOPOLOGY; ID may be the name, here and below
GET     /api/v1/code/ID                             ``Manifest``, needs the token
GET     /api/v1/code/ID/FILE                        the file, needs the token
POST    /api/v1/topology                            201 TOPOLOGY; 202 is never sent: it waits for replication
POST    /api/v1/topology/ID/activate                DONE
POST    /api/v1/topology/ID/deactivate              DONE
POST    /api/v1/topology/ID/rebalance[/WAIT]        DONE; body ``{"settings": {NAME: TEXT}}`` or empty
POST    /api/v1/topology/ID/kill[/WAIT]             DONE; WAIT in seconds, without it the topology's own
======  ==========================================  ======================================================

The body of a submission is one line of JSON, a ``Submission``, a newline, and the bytes of the archive.

::

    CLUSTER     {"version", "address", "leader": "HOST:PORT" or null, "nimbuses": int, "supervisors": int,
                 "slotsTotal", "slotsUsed", "slotsFree", "topologies": int}
    NIMBUS      {"address", "host", "port", "status": "Leader" or "Not a Leader", "isLeader": bool, "uptimeSeconds",
                 "version"}
    SUPERVISOR  {"id", "address", "slotsTotal", "slotsUsed", "uptimeSeconds", "version"}
    TOPOLOGY    {"id", "name", "topologyId", "status", "uptimeSeconds", "settings": {}, "reason": text or null,
                 "secondsLeft": of a wait, or null, "replicationCount": int, "holders": [HOST:PORT …],
                 "assignment": {"supervisor", "slot", "number"} or null,
                 "heartbeat": {"stage", "pid", "count", "figures": {}} or null}
                 after a submission also "note": what was not waited for, or null
    DONE        {"topologyOperation": "kill" …, "topologyId": ID, "status": "success", "topology": TOPOLOGY}
    ERROR       {"error": class of txtopo.errors, "errorMessage": text, "leader": "HOST:PORT" or null}

======  ================================================================
status  errors
======  ================================================================
400     SubmissionError, ConfigError, and a request that cannot be read
401     the token is missing or wrong
404     NotAlive; a path or file that does not exist
409     AlreadyAlive, TransitionError
413     the upload is larger than ``nimbus.upload.bytes.max``
421     NotLeader: ask the nimbus that "leader" names
503     NoLeader, Unreachable, CodeUnavailable, too many submissions: try again
======  ================================================================

Before a submission becomes active, the leader asks one live supervisor whether drivers can run it there: ``POST
http://SUPERVISOR/api/v1/code/ID/check`` with the token and an empty body. The supervisor fetches the code, builds the
topology in a child process, and answers 200 with ``{"topologyId": text}``, or 400 with an ERROR whose message says why
it does not build.
"""
