"""Bounds of what is stored for a tenant."""

from typing import Final

STORED_BYTES_MAX: Final = 2_500_000_000_000
"""Of one tenant's files, containers and vector stores together, unless MOORAGE_STORED_BYTES_MAX says otherwise: what a project of
OpenAI's may store in files (OpenAPI: ``createFile``)."""

RECOUNT_SECONDS: Final = 24 * 3600
"""How often it is looked whether what is counted of a tenant is what is there. A listing for each container: half a cent a day for a
thousand of them."""

RECOUNT_TOGETHER: Final = 500
"""Of these, as many as one round of the reaper looks at for a tenant; it goes on from there a minute later."""

RECOUNT_TENANTS: Final = 16
"""As many as one round looks at: half a minute, and some 5,000 tenants a day. What else the reaper does waits for its rounds."""
