"""What Chromium may do in a desk, as its managed policies: a file that is put where no page and no command writes.

The headless shell reads no policies; in it the walls alone hold. Names: https://chromeenterprise.google/policies/.
"""

import base64
import hashlib
import json
from typing import Any, Final

PATH: Final = "/etc/chromium/policies/managed/moorage.json"
_DENIED: Final = 2
"""Of settings that ask, allow or deny."""
_POLICIES: Final[dict[str, Any]] = {
    "URLBlocklist": ["file://*", "chrome://*", "devtools://*", "view-source:*", "javascript://*", "ftp://*"],
    "AllowFileSelectionDialogs": True,
    "AudioCaptureAllowed": False,
    "AutofillAddressEnabled": False,
    "AutofillCreditCardEnabled": False,
    "BackgroundModeEnabled": False,
    "BrowserNetworkTimeQueriesEnabled": False,
    "BrowserSignin": 0,
    "CommandLineFlagSecurityWarningsEnabled": False,
    "ComponentUpdatesEnabled": False,
    "DefaultGeolocationSetting": _DENIED,
    "DefaultNotificationsSetting": _DENIED,
    "DefaultSensorsSetting": _DENIED,
    "DefaultSerialGuardSetting": _DENIED,
    "DefaultWebBluetoothGuardSetting": _DENIED,
    "DefaultWebHidGuardSetting": _DENIED,
    "DefaultWebUsbGuardSetting": _DENIED,
    "DefaultLocalFontsSetting": _DENIED,
    "DefaultFileSystemReadGuardSetting": _DENIED,
    "DefaultFileSystemWriteGuardSetting": _DENIED,
    "DnsOverHttpsMode": "off",
    "EncryptedClientHelloEnabled": False,
    "ExtensionInstallBlocklist": ["*"],
    "MetricsReportingEnabled": False,
    "NetworkPredictionOptions": _DENIED,
    "PasswordManagerEnabled": False,
    "PrintingEnabled": False,
    "QuicAllowed": False,
    "SafeBrowsingProtectionLevel": 0,
    "SearchSuggestEnabled": False,
    "SpellCheckServiceEnabled": False,
    "SyncDisabled": True,
    "TranslateEnabled": False,
    "VideoCaptureAllowed": False,
    "WebRtcIPHandling": "disable_non_proxied_udp",
}


def policies(ca_pem: str) -> bytes:
    """The file; ``ca_pem`` has what the browser trusts beside the CAs of its own: the egress proxy's, empty without a proxy."""
    return json.dumps(policies_of(ca_pem), sort_keys=True).encode()


def policies_of(ca_pem: str) -> dict[str, Any]:
    """What stands in it."""
    trusted = [base64.b64encode(certificate).decode() for certificate, _ in _trusted(ca_pem)]
    return {**_POLICIES, **({"CACertificates": trusted} if trusted else {})}


def key_pins(ca_pem: str) -> list[str]:
    """Their keys, as ``--ignore-certificate-errors-spki-list`` takes them: for the headless shell."""
    return [base64.b64encode(hashlib.sha256(key).digest()).decode() for _, key in _trusted(ca_pem)]


def _trusted(pem: str) -> list[tuple[bytes, bytes]]:
    """Each certificate with its key, both in DER."""
    if not pem:
        return []
    from cryptography import x509  # A launcher without a proxy has no use for it, and it takes 10 MiB.
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return [
        (each.public_bytes(Encoding.DER), each.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
        for each in x509.load_pem_x509_certificates(pem.encode())
    ]
