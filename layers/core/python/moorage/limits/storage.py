"""Bounds of what is stored for a tenant."""

from typing import Final

from moorage.limits.units import KIB, MIB

STORED_BYTES_MAX: Final = 2_500_000_000_000
"""Of one tenant's files, containers and vector stores together, unless MOORAGE_STORED_BYTES_MAX says otherwise: what a project of
OpenAI's may store in files (OpenAPI: ``createFile``)."""

PACKED_HERE_BYTES_MAX: Final = 64 * KIB
UNPACKED_HERE_BYTES_MAX: Final = 8 * KIB
"""JSON up to here is packed, and unpacked, on the event loop, in a millisecond; what zlib has packed is 1,000 times as long at most.
Longer JSON is packed and unpacked on a thread."""

RESPONSES_READ_AT_ONCE: Final = 32
"""Of those that hold items of one request. The pool of connections to the table has 64."""

RECORDS_UNPACKED_AT_ONCE: Final = 8
"""Of those that are read together. One may hold 32 MiB of JSON."""

RECOUNT_SECONDS: Final = 24 * 3600
"""How often it is looked whether what is counted of a tenant is what is there. A listing for each container: half a cent a day for a
thousand of them."""

RECOUNT_TOGETHER: Final = 500
"""Of these, as many as one round of the reaper looks at for a tenant; it goes on from there a minute later."""

RECOUNT_TENANTS: Final = 16
"""As many as one round looks at: half a minute, and some 5,000 tenants a day. What else the reaper does waits for its rounds."""

AUDIT_FILE_BYTES_MAX: Final = 16 * MIB
AUDIT_FILES_MAX: Final = 4
"""Of the audit trail of one machine: some 250,000 lines. The oldest file is dropped."""

AUDIT_OPENINGS_MAX: Final = 10
"""Times that the file is opened for one line. It is opened again where another process has just put it aside."""
