"""Event time, beside Structured Streaming, bytewax and a plain batch job.

Each contender's answers are compared, row by row, with what the events themselves say; see ``events.py``.

    events.py           events and answers of windows: which there are, by the rule for late rows of each contender
    doubled.py          events of which some come twice
    orders.py           orders and payments, for joins
    page_views.py       page views as JSON lines, and the four tables that a job makes of them
    files.py            transactions as Parquet files
    streaming_peer.py   Structured Streaming
    bytewax_peer.py     bytewax, in a virtual environment of its own; bytewax_job.py runs there
    batch_peer.py       the plain batch job over page views
    topologies.py       txtopo's topologies
"""
