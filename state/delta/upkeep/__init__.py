"""Upkeep of a Delta table's log and folder: checkpoints and vacuum; :mod:`state.delta.merging` has that of its files.

- *When*: after ``every_writes`` writes, or once the table has grown by many rows and by half. So where rows expire,
  large writes leave no more behind than small ones. The more files are kept, the rarer are checkpoints, which have all
  of them.
- *Files* that the coordinator itself has removed from the table go as soon as nobody needs them, a few at a time
  (:class:`~state.delta.upkeep.past.Removed`): so little more is there than is to be.
- A *checkpoint* of the log, and the removal of versions that nobody needs: their log entries, and their files. What it
  costs grows with the log, and no write depends on it, so a thread does it while writes go on
  (:mod:`~state.delta.upkeep.rounds`). It is not left to delta-rs, whose vacuum skips the folder that txtopo writes
  data files to (see :mod:`state.delta.log.data_files`), and takes what the checkpoint no longer knows for nobody's (see
  :mod:`state.delta.upkeep.past`).

Which versions are needed, a run says (:class:`~txtopo.api.state.History`):

- with ``topology.history.recent.secs``, those of that time, or of ``vacuum_retention_hours`` if that is longer, and
  the newest version up to each point. A version that was the newest at some moment of that time is one of it, so
  whoever opened it then can read it to its end;
- without, log entries stay as long as the table's ``delta.logRetentionDuration`` (30 days by default),
  ``topology.rewind.hours`` and ``vacuum_retention_hours``, and files as long as the latter two, or for ever.

Beside them stay the newest version, the last one that made a transaction visible with all later ones, which a start
compares; the entries that turned the table back, which tell that later txids were undone; and for some minutes
all entries, which make a late put fail (see :mod:`state.delta.writer`).
"""
