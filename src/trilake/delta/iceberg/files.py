"""pyiceberg's input and output through a store."""

from __future__ import annotations

from io import BytesIO

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream

from trilake.errors import ObjectNotFoundError
from trilake.storage.base import Store


class StoreIO(FileIO):
    """pyiceberg's files through a store; ``location`` is how Iceberg spells the table's folder."""

    def __init__(self, store: Store, location: str) -> None:
        super().__init__()
        self.store, self.root = store, location

    def new_input(self, location: str) -> _File:
        return _File(self, location)

    def new_output(self, location: str) -> _File:
        return _File(self, location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        path = location if isinstance(location, str) else location.location
        self.store.delete([self.key(path)])

    def key(self, location: str) -> str:
        """The key of a file in the table's folder."""
        return location.removeprefix(f"{self.root}/")


class _File(InputFile, OutputFile):
    def __init__(self, io: StoreIO, location: str) -> None:
        super().__init__(location)
        self.io, self.size = io, -1

    def __len__(self) -> int:
        return self.size if self.size >= 0 else self.io.store.head(self.io.key(self.location)).size

    def exists(self) -> bool:
        try:
            self.io.store.head(self.io.key(self.location))
        except ObjectNotFoundError:
            return False
        return True

    def open(self, seekable: bool = True) -> InputStream:
        del seekable
        return BytesIO(self.io.store.read(self.io.key(self.location)))

    def to_input_file(self) -> InputFile:
        return self

    def create(self, overwrite: bool = False) -> OutputStream:
        del overwrite  # names are fresh
        return _Output(self)


class _Output(BytesIO):
    """Bytes that become a file when they are closed."""

    def __init__(self, file: _File) -> None:
        super().__init__()
        self.file = file

    def close(self) -> None:
        if not self.closed:
            content = self.getvalue()
            self.file.size = len(content)
            self.file.io.store.put(self.file.io.key(self.file.location), content)
        super().close()
