"""A service that speaks HTTPS: one real process, with a certificate made here."""

from __future__ import annotations

import datetime
import http.client
import ssl
from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.servers.tierdex_server import running_tierdex
from tierdex.app.http.certificate import Certificate, check_certificate
from tierdex.app.http.server_settings import ServerSettings, load_server_settings
from tierdex.client.remote import Client
from tierdex.errors import InvalidRequestError, UnavailableError

ENTRY = {"topic": "orders", "keys": ["k"], "queue_id": 0, "offset": 1, "size": 2, "timestamp": 3}


def make_certificate(folder, name="server"):
    """Write a self-signed certificate for 127.0.0.1 and its key; return their paths."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(exist_ok=True)
    cert_path, key_path = folder / "tls.crt", folder / "tls.key"
    cert_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return cert_path, key_path


def test_service_speaks_https_to_who_trusts_its_authority(tmp_path):
    cert, key = make_certificate(tmp_path / "tls")
    with running_tierdex(
        tmp_path / "data", "--tls-cert", str(cert), "--tls-key", str(key), connection_timeout=2
    ) as server:
        assert server.url.startswith("https://127.0.0.1:")
        with Client(server.url, ca=str(cert)) as client:
            client.put(**ENTRY)
            assert [e.offset for e in client.query("orders", key="k").entries] == [1]
            with pytest.raises(InvalidRequestError):
                client.query("", key="k")
        with Client(server.url, attempts=1) as stranger, pytest.raises(UnavailableError):
            stranger.topics()
        unencrypted = server.url.replace("https", "http")
        with pytest.raises(UnavailableError, match="its address begins with https://"):
            Client(unencrypted, attempts=1).topics()
        context = ssl.create_default_context(cafile=cert)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        caller = http.client.HTTPSConnection(*server.address, context=context)
        caller.request("GET", "/healthz")
        answer = caller.getresponse()
        assert (answer.status, answer.read()) == (200, b'{"status":"ok"}')
        assert "GCM" in caller.sock.cipher()[0] or "CHACHA20" in caller.sock.cipher()[0]
        # An answer before its request is whole: the connection closes slowly, without half an end.
        caller.putrequest("POST", "/v1/entries")
        caller.putheader("content-length", str(1 << 40))
        caller.putheader("content-type", "application/json")
        caller.endheaders(b"{")
        assert caller.getresponse().status == 413
        caller.close()
        assert server.stop() == 0
        assert not any(line.get("level") == "error" for line in server.log()), server.lines


def test_renewed_certificate_is_used_and_a_broken_one_changes_nothing(tmp_path):
    cert, key = make_certificate(tmp_path / "tls", "old")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    told = []

    class Told:
        def note(self, event, **_):
            told.append(event)

        error = note

    settings = ServerSettings(tls_cert=cert, tls_key=key)
    certificate = Certificate(settings, context, Told())
    certificate.renew()
    assert told == []
    whole = cert.read_bytes()
    cert.write_bytes(whole[:100])
    certificate.renew()
    assert told == ["certificate not renewed"]
    assert common_name(context, whole) == "old"
    make_certificate(tmp_path / "tls", "new")
    certificate.renew()
    certificate.renew()
    assert told == ["certificate not renewed", "certificate renewed"]
    assert common_name(context, cert.read_bytes()) == "new"


def common_name(context, authority):
    """Return whom the server's context shows to a caller who trusts this authority."""
    to_server, to_caller = ssl.MemoryBIO(), ssl.MemoryBIO()
    trusting = ssl.create_default_context(cadata=authority.decode())
    caller = trusting.wrap_bio(to_caller, to_server, server_hostname="127.0.0.1")
    server = context.wrap_bio(to_server, to_caller, server_side=True)
    waiting = [caller, server, caller, server]
    for side in waiting:
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return dict(pair[0] for pair in caller.getpeercert()["subject"])["commonName"]


def test_certificate_that_cannot_be_used_is_refused_with_its_setting(tmp_path):
    cert, key = make_certificate(tmp_path / "tls")
    with pytest.raises(InvalidRequestError, match="together"):
        load_server_settings(tls_cert=cert)
    with pytest.raises(InvalidRequestError, match="ca"):
        Client("https://127.0.0.1:1", ca=str(tmp_path / "none.pem"))
    key.write_text("no key")
    for wrong in (key, tmp_path / "none.pem"):
        with pytest.raises(InvalidRequestError, match="cannot be used"):
            check_certificate(load_server_settings(tls_cert=cert, tls_key=wrong))
