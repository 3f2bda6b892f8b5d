"""The deployment's own certificate authority: P-256, made once, its key readable by the proxy alone.

It is kept in a directory (``ensure_ca``), or in the table with its key sealed under the deployment's key (``ensure_sealed_ca``):
then whoever needs it first makes it, the API may read the certificate, and only the proxy can open the key.

Only connections to domains that have secrets are opened with its certificates. The shape of both kinds of certificate is what the
strictest readers ask for: Python 3.13 checks key usage and key identifiers, Go and Node read only the subject alternative name, and
Apple's rule of at most 398 days holds for leaves.
"""

import datetime
import os
from dataclasses import field
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from moorage import sealing
from moorage.dataclass import dataclass
from moorage.egress.keys import KeyLost, KeyService
from moorage.egress.store import EgressStore, SealedAuthority

CERTIFICATE_FILE: Final = "egress-ca.pem"
KEY_FILE: Final = "egress-ca.key"

_CONTEXT: Final = {"ca": "egress"}
"""What the sealed key is bound to."""
_CA_LIFE: Final = datetime.timedelta(days=3650)
_LEAF_LIFE: Final = datetime.timedelta(days=30)
_CLOCK_SKEW: Final = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def ensure_ca(directory: Path) -> Authority:
    """The authority kept in ``directory``, made there if it is not (``egress-ca.key`` with mode 0600, ``egress-ca.pem``).

    Two processes may do this at once: the key file is created exclusively, and the certificate is derived from it.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    certificate_file, key_file = directory / CERTIFICATE_FILE, directory / KEY_FILE
    if certificate_file.exists():
        return load_ca(certificate_file.read_bytes(), key_file.read_bytes())
    authority = new_ca()
    try:
        _write_new(key_file, authority.key_pem, 0o600)
    except FileExistsError:
        authority = _certified(_private_key(key_file.read_bytes()))
    temporary = directory / f".{CERTIFICATE_FILE}.{os.getpid()}"
    _write_new(temporary, authority.certificate_pem.encode(), 0o644)
    temporary.replace(certificate_file)
    return load_ca(certificate_file.read_bytes(), key_file.read_bytes())


async def ensure_sealed_ca(store: EgressStore, keys: KeyService) -> SealedAuthority:
    """The authority kept in the table, made there if it is not. Doing it twice at once is harmless: the first one stays.

    One that is sealed under a key that the deployment does not have is replaced: nobody could open it, and the proxy would never start.
    """
    kept = await store.load_ca()
    if kept is None:
        return await store.save_ca(await _sealed(new_ca(), keys))
    if kept.sealed_under and not keys.has(kept.sealed_under):
        return await store.replace_ca(kept, await _sealed(new_ca(), keys))
    return kept


async def _sealed(authority: Authority, keys: KeyService) -> SealedAuthority:
    data_key = await keys.generate(_CONTEXT)
    ciphertext = sealing.seal(authority.key_pem.decode(), data_key.plaintext, authority.certificate_pem.encode())
    return SealedAuthority(authority.certificate_pem, data_key.wrapped, ciphertext, keys.key_id)


async def ensure_open_ca(store: EgressStore, keys: KeyService) -> Authority:
    """The same for the proxy, which opens it. A record of an earlier version does not say under which key it is sealed; the key service
    does."""
    kept = await ensure_sealed_ca(store, keys)
    try:
        return await open_ca(kept, keys)
    except KeyLost:
        return await open_ca(await store.replace_ca(kept, await _sealed(new_ca(), keys)), keys)


async def open_ca(sealed: SealedAuthority, keys: KeyService) -> Authority:
    data_key = await keys.unwrap(sealed.wrapped_key, _CONTEXT)
    key_pem = sealing.unseal(sealed.ciphertext, data_key, sealed.certificate_pem.encode())
    return load_ca(sealed.certificate_pem.encode(), key_pem.encode())


def load_ca(certificate_pem: bytes, key_pem: bytes) -> Authority:
    """Raises :class:`ValueError` if the two do not belong together or the key is no P-256 key."""
    certificate, key = x509.load_pem_x509_certificate(certificate_pem), _private_key(key_pem)
    if certificate.public_key() != key.public_key():
        raise ValueError("The egress CA's certificate and key do not belong together.")
    return Authority(certificate, key)


def new_ca() -> Authority:
    return _certified(ec.generate_private_key(ec.SECP256R1()))


def leaf(authority: Authority, host: str, key: ec.EllipticCurvePublicKey) -> x509.Certificate:
    """A server certificate for one DNS name."""
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])]))
        .issuer_name(authority.certificate.subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(min(now + _LEAF_LIFE, authority.certificate.not_valid_after_utc))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False)
        .sign(authority.key, hashes.SHA256())
    )


def _certified(key: ec.EllipticCurvePrivateKey) -> Authority:
    now = datetime.datetime.now(datetime.UTC)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    # GnuTLS tells issuers apart by name alone: two deployments' CAs in one bundle must not bear the same.
    common_name = f"moorage egress {identifier.digest.hex()[:12]}"
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name), x509.NameAttribute(NameOID.ORGANIZATION_NAME, "moorage")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate, key)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _private_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("The egress CA's key is no P-256 key.")
    return key


def _write_new(path: Path, content: bytes, mode: int) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
