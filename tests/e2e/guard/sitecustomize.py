"""Read by Python at its start when this folder is on PYTHONPATH: no use of the network passes.

Whatever is tried is refused and written to the file that OBBFLOW_NETWORK_LOG names.
"""

import os
import socket
from pathlib import Path

_LOOPBACK = {"127.0.0.1", "::1", "localhost", "", None}
_connect = socket.socket.connect
_getaddrinfo = socket.getaddrinfo


def _refuse(host: object) -> None:
    with Path(os.environ["OBBFLOW_NETWORK_LOG"]).open("a", encoding="utf-8") as log:
        log.write(f"{host}\n")
    raise OSError(f"tests do not use the network, got {host}")


def _guarded_connect(self: socket.socket, address: object) -> None:
    if isinstance(address, tuple) and address[0] not in _LOOPBACK:
        _refuse(address[0])
    _connect(self, address)


def _guarded_getaddrinfo(host: object, *args: object, **options: object) -> object:
    if host not in _LOOPBACK:
        _refuse(host)
    return _getaddrinfo(host, *args, **options)


socket.socket.connect = _guarded_connect
socket.getaddrinfo = _guarded_getaddrinfo
