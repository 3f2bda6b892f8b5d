"""Bounds of the way out."""

from typing import Final

from moorage.limits.units import KIB, MIB

EGRESS_POLICY_SECONDS_MAX: Final = 2.0
"""Age at which the proxy reads a container's policy again: a revocation holds after this long at the latest."""

EGRESS_CONNECTIONS_MAX: Final = 256
"""Connections of one container to the proxy. Browsers and package managers stay below 64."""

EGRESS_TENANT_CONNECTIONS_MAX: Final = 1_024
"""Connections of all containers of one tenant: an eighth of what the proxy takes."""

EGRESS_STRANGERS_MAX: Final = 2 * EGRESS_CONNECTIONS_MAX
"""Connections from one place (a sandbox, an address) that have not shown a credential yet. Programs show it in their first bytes, and
a burst of them meets the limit of its container first, which is told to it."""

EGRESS_STRANGERS_SCARCE_MAX: Final = 32
EGRESS_STRANGERS_ALL_MAX: Final = 2_048
"""Once there are so many strangers in all, one place has as many as the line above: that is enough for whoever does not hold them."""

EGRESS_SILENT_MAX: Final = 1_024
"""Connections that have said nothing, where sandboxes share an address: with one more the oldest is closed. A forwarder's first line is
there within milliseconds."""

EGRESS_CONNECTIONS_PER_SECOND_MAX: Final = 64
EGRESS_BURST_SECONDS: Final = EGRESS_CONNECTIONS_MAX / EGRESS_CONNECTIONS_PER_SECOND_MAX
"""New connections of one place: so many in a second, after a burst of all that a container may have. A new one costs the proxy some
3 ms, so that one place has a fifth of it. Those beyond wait for their turn."""

EGRESS_ACCEPTED_AT_ONCE_MAX: Final = 64
"""Connections that are taken from the kernel before the loop turns to something else: some milliseconds."""

EGRESS_ALL_CONNECTIONS_MAX: Final = 8_192
"""Connections to one proxy, as far as the process may open as many files."""

EGRESS_HELLO_BYTES_MAX: Final = 64 * KIB
"""A TLS ClientHello; with post-quantum key shares about 2 KiB."""

EGRESS_HEADER_BYTES_MAX: Final = 128 * KIB
"""A request's line and headers, twice what common servers take."""

EGRESS_KEPT_BYTES_MAX: Final = EGRESS_CONNECTIONS_MAX * EGRESS_HEADER_BYTES_MAX
EGRESS_TENANT_KEPT_BYTES_MAX: Final = EGRESS_TENANT_CONNECTIONS_MAX * EGRESS_HEADER_BYTES_MAX
"""What the connections of a container, and of a tenant, keep in the proxy's memory: headers, bodies held for their secrets, parts of
WebSocket messages. The connection that grows beyond it is closed. HTTP/1's headers alone reach as much."""

EGRESS_HELLO_SECONDS_MAX: Final = 30
"""A connection that has said nothing useful for this long is closed (slow clients)."""

EGRESS_RESOLVE_SECONDS_MAX: Final = 5.0
"""A name that is not resolved within this time is unresolvable."""

EGRESS_PIECE_BYTES_MAX: Final = 64 * KIB
"""What an answer's body is unpacked into at a time: the client has taken one piece before the next is made."""

EGRESS_CODINGS_MAX: Final = 3
"""Codings of one body (``Content-Encoding: gzip, br``) that are undone; servers use one."""

EGRESS_ZSTD_WINDOW_BYTES_MAX: Final = 8 * MIB
"""What an encoder may ask of a decoder over HTTP (RFC 9659, section 3)."""

EGRESS_WINDOWS_MAX: Final = 16
"""Bodies in br and zstd that the proxy unpacks at once: each keeps a window of up to 16 MiB (RFC 7932, section 9.1), and its task
has 512 MiB."""

EGRESS_WINDOWS_PER_TENANT_MAX: Final = 4
"""Of these, one tenant's: requests ask for plain bodies, and few servers pack them anyhow."""

EGRESS_FORM_BYTES_MAX: Final = 64 * KIB
"""Of a request's body that is held to put secrets in: what somebody signs in with is short."""

EGRESS_VALUES_BYTES_MAX: Final = 256 * KIB
"""What values add to a request's line and headers, and to its body: all that a policy's secrets may say, twice."""

EGRESS_DENIED_BODY_BYTES_MAX: Final = 1 * MIB
"""A refused request's body is read up to here, so that the client sees the refusal; beyond it the connection is cut."""

EGRESS_LOG_SECONDS: Final = 0.2
"""Decisions are written to the table in batches of this age."""

EGRESS_LOG_ENTRIES_PER_FLUSH_MAX: Final = 100
"""Records of one container in one batch; equal ones count as one, and what is more is counted in the last."""

EGRESS_PATH_CHARS_MAX: Final = 1_024
"""A path as the log keeps it."""

EGRESS_WANTED_MAX: Final = 16
"""Hosts and secrets that a person is asked to allow at once: each is a question of its own."""

EGRESS_WANTED_ENTRIES_MAX: Final = 500
EGRESS_WANTED_PAGES_MAX: Final = 8
"""Decisions of the proxy in a page, and pages from the newest, that are searched for those: an installation of packages asks for
thousands of files, and each is a decision."""
