#!/usr/bin/env python3
"""An image for containers that contains only the static program, in the layout of the Open Container Initiative. No daemon is needed.

    oci.py unpack IMAGE.tar DIR     verifies every digest, unpacks the layers into DIR, and prints the image's config

`podman load -i IMAGE.tar` and `skopeo copy oci-archive:IMAGE.tar …` read an image, as does Docker since version 25.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import sys
import tarfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}
INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
# The user of the Helm chart.
USER = 10001
DATA = "data"


def add(archive: tarfile.TarFile, path: str, data: bytes | None, mode: int, when: int, owner: int = 0) -> None:
    """A file, or a directory if there is no data."""
    entry = tarfile.TarInfo(path)
    entry.mode, entry.mtime, entry.uid, entry.gid = mode, when, owner, owner
    if data is None:
        entry.type = tarfile.DIRTYPE
    else:
        entry.size = len(data)
    archive.addfile(entry, None if data is None else io.BytesIO(data))


def layer(files: dict[str, bytes], when: int) -> bytes:
    """The file system: programs below bin, a user, the directory of the data, and /tmp."""
    users = f"root:x:0:0:root:/:/usr/bin/millrace\nmillrace:x:{USER}:{USER}:millrace:/{DATA}:/usr/bin/millrace\n"
    files = {**files, "etc/passwd": users.encode(), "etc/group": f"root:x:0:\nmillrace:x:{USER}:\n".encode()}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for folder in sorted({str(parent) for path in files for parent in Path(path).parents} - {"."}):
            add(archive, folder, None, 0o755, when)
        add(archive, DATA, None, 0o700, when, USER)
        add(archive, "tmp", None, 0o1777, when)
        for path, data in sorted(files.items()):
            add(archive, path, data, 0o755 if "/bin/" in f"/{path}" else 0o644, when)
    return buffer.getvalue()


def image(files: dict[str, bytes], machine: str, version: str, when: int, level: int = 9) -> bytes:
    """A tar archive with the layout of an image."""
    blobs: dict[str, bytes] = {}

    def blob(kind: str, data: bytes, **more: Any) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data), **more}

    def text(document: dict[str, Any]) -> bytes:
        return json.dumps(document, separators=(",", ":")).encode()

    labels = {
        "org.opencontainers.image.title": "millrace",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.licenses": "Apache-2.0",
    }
    plain = layer(files, when)
    made = datetime.fromtimestamp(when, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    platform = {"architecture": ARCHITECTURE[machine], "os": "linux"}
    config = {
        "created": made,
        **platform,
        "config": {
            "User": f"{USER}:{USER}",
            "Entrypoint": ["/usr/bin/millrace"],
            "Cmd": ["serve"],
            # 127.0.0.1 of a container cannot be reached from outside of it.
            "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", f"HOME=/{DATA}", "MILLRACE_LISTEN=0.0.0.0:7070"],
            "WorkingDir": f"/{DATA}",
            "Volumes": {f"/{DATA}": {}},
            "ExposedPorts": {"7070/tcp": {}},
            "StopSignal": "SIGTERM",
            "Labels": labels,
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(plain).hexdigest()}"]},
        "history": [{"created": made, "created_by": "make dist", "comment": f"millrace {version}"}],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": blob(CONFIG, text(config)),
        "layers": [blob(LAYER, gzip.compress(plain, level, mtime=0))],
        "annotations": labels,
    }
    # The name that a container engine gives to the image it loads.
    names = {"org.opencontainers.image.ref.name": version, "io.containerd.image.name": f"docker.io/library/millrace:{version}"}
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [blob(MANIFEST, text(manifest), platform=platform, annotations=names)]}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for folder in ["blobs", "blobs/sha256"]:
            add(archive, folder, None, 0o755, when)
        for path, data in sorted({**blobs, "oci-layout": text({"imageLayoutVersion": "1.0.0"}), "index.json": text(index)}.items()):
            add(archive, path, data, 0o644, when)
    return buffer.getvalue()


def layers(archive: Path) -> tuple[dict[str, Any], list[bytes]]:
    """The config and the layers of an image of which every digest and size is right."""
    with tarfile.open(archive) as layout:

        def entry(name: str) -> bytes:
            found = layout.extractfile(name)
            assert found, f"{name} is a file"
            return found.read()

        def blob(of: dict[str, Any]) -> bytes:
            data = entry(f"blobs/sha256/{of['digest'].removeprefix('sha256:')}")
            if of["size"] != len(data) or of["digest"] != f"sha256:{hashlib.sha256(data).hexdigest()}":
                sys.exit(f"oci: {archive.name}: the blob {of['digest']} has another digest or size")
            return data

        assert json.loads(entry("oci-layout")) == {"imageLayoutVersion": "1.0.0"}
        (listed,) = json.loads(entry("index.json"))["manifests"]
        manifest = json.loads(blob(listed))
        config: dict[str, Any] = json.loads(blob(manifest["config"]))
        plain = [gzip.decompress(blob(of)) for of in manifest["layers"]]
    if config["rootfs"]["diff_ids"] != [f"sha256:{hashlib.sha256(data).hexdigest()}" for data in plain]:
        sys.exit(f"oci: {archive.name}: the layers are not those of the config")
    return config, plain


def unpack(archive: Path, into: Path) -> dict[str, Any]:
    """Unpacks the layers into a directory; the config."""
    config, plain = layers(archive)
    for data in plain:
        with tarfile.open(fileobj=io.BytesIO(data)) as files:
            # Modes such as that of /tmp are kept. The digests are right, so the files are those that were packed.
            files.extraction_filter = staticmethod(lambda member, _path: member)
            files.extractall(into)
    return config


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] != "unpack":
        sys.exit(__doc__)
    print(json.dumps(unpack(Path(sys.argv[2]), Path(sys.argv[3])), indent=1))
