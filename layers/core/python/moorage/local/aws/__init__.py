"""AWS on one machine: a table and a bucket of ours, both durable.

Everything goes through one gate on one address of the loopback (``gate.py``), which checks every request's signature. What must outlive
a power cut lies in one journal (``journal.py``): rows of the table (``table.py``), and names of the bucket's objects (``bucket.py``;
their bytes are files beside it).
"""
