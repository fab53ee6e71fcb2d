"""Objects in a bucket: the one module that knows the library which reaches them. Imported only where an address is given.

Credentials and the server come from where the library finds them: the environment, as in AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL
and AWS_REGION, or the machine in the cloud. Runs are only ever made, where nothing of their name is. Only objects that say
what a machine does now are replaced and removed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, PermissionDeniedError, UnauthenticatedError
from obstore.store import from_url

from lgbench.errors import NoAccess, StorageError, first_line
from lgbench.results.addresses import Address

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import RetryConfig

RETRIES: RetryConfig = {
    "max_retries": 4,
    "backoff": {"init_backoff": timedelta(seconds=0.2), "max_backoff": timedelta(seconds=5), "base": 2},
    "retry_timeout": timedelta(seconds=60),
}
"""A server that does not answer is asked for some seconds, not for minutes: whoever waits is at a terminal."""
PROBE = ".lgbench"
"""An object that shows whether this account may write, and whether the server keeps what is there."""
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_DENIED = {
    "AccessDenied",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
    "AuthenticationFailed",
}
_NO_BUCKET = {"NoSuchBucket", "ContainerNotFound"}
_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_SERVICE_ACCOUNT",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}


class Object(NamedTuple):
    """An object, as a listing describes it."""

    size: int
    """In bytes."""
    tag: str
    """Another one for other content."""


class Store:
    """The objects of a folder in a bucket, by their names within the folder. Raises StorageError where the server refuses."""

    def __init__(self, address: Address) -> None:
        self.address = address
        _check_endpoints()
        url = "/".join([f"{address.scheme}://{address.bucket}", *(quote(part, safe="") for part in address.parts)])
        with self._told():
            # A server that the user names by http:// is reached by it; no other one is.
            self._store = from_url(url, client_options={"allow_http": True}, retry_config=RETRIES)

    def list(self, folder: str | None = None) -> dict[str, Object]:
        """Every object, also in folders within the folder; or those of one folder within it."""
        with self._told():
            every = (meta for chunk in obstore.list(self._store, folder) for meta in chunk)
            return {meta["path"]: _described(meta) for meta in every}

    def find(self, name: str) -> Object | None:
        """An object, as a listing describes it; None where no object has this name."""
        try:
            with self._told():
                return _described(obstore.head(self._store, name))
        except _Missing:
            return None

    def get(self, name: str) -> tuple[bytes, Object] | None:
        """The content of an object, and what a listing says of it; None where no object has this name."""
        try:
            with self._told():
                found = obstore.get(self._store, name)
                return bytes(found.bytes()), _described(found.meta)
        except _Missing:
            return None

    def put(self, name: str, content: bytes) -> Object | None:
        """Make an object where nothing of its name is. None where something is; that stays as it is."""
        try:
            with self._told():
                made = obstore.put(self._store, name, content, mode="create", use_multipart=False)
                return Object(len(content), made["e_tag"] or "")
        except _Taken:
            return None
        except _Missing as error:
            raise self._no_bucket() from error

    def replace(self, name: str, content: bytes) -> None:
        """Make an object, or replace it."""
        with self._told():
            obstore.put(self._store, name, content, use_multipart=False)

    def remove(self, name: str) -> None:
        """Remove an object, if it is there."""
        with suppress(_Missing), self._told():
            obstore.delete(self._store, name)

    def require_writable(self) -> None:
        """Raise StorageError where this account may not write, or where the server would replace what is there."""
        content = b"lgbench asks by this object whether it may write here.\n"
        if self.put(PROBE, content) and self.put(PROBE, content):
            raise NoAccess(
                f"the server of {self.address} replaces objects where it is asked not to (If-None-Match), so runs could be "
                "lost; use another server, or a later release of it"
            )

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Errors of the library become sentences."""
        try:
            yield
        except AlreadyExistsError as error:
            raise _Taken from error
        except FileNotFoundError as error:
            if _code(error) in _NO_BUCKET:
                raise self._no_bucket() from error
            raise _Missing from error
        except Exception as error:  # the library has a dozen kinds
            raise self._error(error) from error
        except BaseException as error:
            if type(error).__name__ == "PanicException":  # it gave up, most often over a setting that it cannot read
                raise StorageError(f"{self.address} cannot be reached: {first_line(error)}") from error
            raise

    def _error(self, error: Exception) -> StorageError:
        """The sentence for an error of the library, whose own message goes over many lines."""
        text, code, status = str(error), _code(error), _status(error)
        server = _server(text)
        if code in _NO_BUCKET:
            return self._no_bucket()
        if "169.254.169.254" in text or "metadata.google" in text or "must be specified" in text:
            names = _CREDENTIALS[self.address.scheme]
            return NoAccess(f"no credentials for {self.address} are found; set {names}, or those that your provider gives")
        if code in _DENIED or status in (401, 403) or isinstance(error, PermissionDeniedError | UnauthenticatedError):
            why = f" ({code})" if code else ""
            return NoAccess(f"the server refuses access to {self.address}{why}; check the credentials and what they may do")
        if "error sending request" in text or "client error" in text.lower():
            where = f" at {server}" if server else ""
            return StorageError(f"no server answers for {self.address}{where}; check the network and AWS_ENDPOINT_URL")
        if "redirect without LOCATION" in text or code in ("PermanentRedirect", "AuthorizationHeaderMalformed"):
            return NoAccess(f"the bucket of {self.address} is in another region; set AWS_REGION to that of the bucket")
        reason = f"{server or 'the server'} answers with {status} {code}".rstrip() if status else first_line(error)
        return StorageError(f"{self.address} cannot be used: {reason}")

    def _no_bucket(self) -> StorageError:
        return NoAccess(f"there is no bucket {self.address.bucket!r} for {self.address}; make it, or name another one")


def _described(meta: ObjectMeta) -> Object:
    return Object(meta["size"], meta["e_tag"] or meta["last_modified"].isoformat())


class _Taken(Exception):
    """Something of the name is there already."""


class _Missing(Exception):
    """Nothing of the name is there."""


def _check_endpoints() -> None:
    """Raise NoAccess for a server's address that the library would end the process over."""
    for name in ENDPOINTS:
        text = os.environ.get(name)
        if text is None:
            continue
        try:
            url = urlsplit(text)
            sound = url.scheme in ("http", "https") and bool(url.hostname) and (url.port is None or url.port > 0)
        except ValueError:
            sound = False
        if not sound or re.search(r"\s", text):
            raise NoAccess(f"{name} is {text!r}, and no address of a server; use one such as http://localhost:9000")


def _code(error: Exception) -> str:
    """The code in the server's answer, such as NoSuchBucket; empty if there is none."""
    found = re.search(r"<Code>(\w+)</Code>", str(error))
    return found[1] if found else ""


def _status(error: Exception) -> int | None:
    found = re.search(r"status code: (\d{3})", str(error))
    return int(found[1]) if found else None


def _server(text: str) -> str:
    """The server that was asked, by an error's message; empty if it names none."""
    found = re.search(r"Error performing [A-Z]+ (\w+://[^/\s]+)", text)
    return found[1] if found else ""
