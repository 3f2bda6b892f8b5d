"""AWS on one machine: the table and the bucket are ours and durable; functions, state machine and keys are ministack's.

Everything goes through one gate on one address of the loopback (``gate.py``), which checks every request's signature. What must outlive
a power cut lies in one journal (``journal.py``): rows of the table (``table.py``), names of the bucket's objects (``bucket.py``; their
bytes are files beside it), and the key service's keys. Executions, functions and logs are made anew by each start: the loop's own
recovery restarts what has no execution.
"""
