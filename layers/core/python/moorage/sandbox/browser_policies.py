"""What Chromium may do in a desk, as its managed policies: a file that is put where no page and no command writes.

The headless shell reads no policies; in it the walls alone hold. Names: https://chromeenterprise.google/policies/.
"""

import base64
import hashlib
import json
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization

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
    """The file; ``ca_pem`` is the certificate of the egress proxy's CA, empty without a proxy."""
    trusted = {"CACertificates": [base64.b64encode(_der(ca_pem)).decode()]} if ca_pem else {}
    return json.dumps({**_POLICIES, **trusted}, sort_keys=True).encode()


def key_pins(ca_pem: str) -> list[str]:
    """The CA's key, as ``--ignore-certificate-errors-spki-list`` takes it: for the headless shell."""
    if not ca_pem:
        return []
    key = x509.load_pem_x509_certificate(ca_pem.encode()).public_key()
    encoded = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return [base64.b64encode(hashlib.sha256(encoded).digest()).decode()]


def _der(pem: str) -> bytes:
    return x509.load_pem_x509_certificate(pem.encode()).public_bytes(serialization.Encoding.DER)
