"""Files that an attacker made up: their numbers are absurd, and every checksum is right.

Checksums find accidents. A file from a stranger's bucket verifies whatever it says, so each size, count
and position in it must be checked before it is used: here any of them is set to something absurd and
all checksums are made anew. Opened, asked, walked and checked in guarded memory, such a file may be
refused, or answer what it likes; it may not end the process, hang it, fill its memory, or raise
anything but a typed error.
"""

from __future__ import annotations

import random
import resource
from collections import Counter
from itertools import pairwise

import google_crc32c
import numpy as np

from tests.indexfile.searches import find_all
from tests.torture.file_forms import Compacted, InGroups, Published, Sealed, Streamed
from tests.torture.form import PATH, REFUSALS
from tierdex.errors import CorruptFileError
from tierdex.fileparts.checksums import checksum, unit_seed
from tierdex.fileparts.footer import read_footer
from tierdex.fileparts.layout import (
    FILTER_PARTITION,
    FOOTER,
    FOOTER_BYTES,
    PART_COUNT_MAX,
    PART_ENTRY,
    Part,
)
from tierdex.indexfile import layout
from tierdex.indexfile.chained.file import ChainedFile
from tierdex.indexfile.check import check_file
from tierdex.indexfile.compacted.file import CompactedFile

_TABLES = {
    Part.STATISTICS: layout.STATISTICS, Part.COLUMNS: layout.COLUMN, Part.QUEUES: layout.QUEUE,
    Part.TOPICS: layout.TOPIC, Part.DIRECTORY: layout.DIRECTORY_ENTRY,
    Part.FILTER_PARTITIONS: FILTER_PARTITION,
}  # fmt: skip
_KEPT = {"magic", "uuid", "crc", "table_crc", "format_version", "form"}


class Forger:
    """Sets fields of one sound file of either form; `make` returns the bytes, checksums made anew."""

    def __init__(self, sound, *, compacted):
        self.sound, self.is_compacted = sound, compacted
        self.footer = read_footer(self._read, len(sound), "sound")
        self.uuid, self.parts = self.footer.uuid, self.footer.parts
        self.covered = [
            part for part in self.parts.values()
            if checksum(self._part(part), unit_seed(self.uuid, part.kind)) == part.crc
        ]  # fmt: skip
        self.fields = list(self._fields())

    def make(self, rng):
        """Return (what was set, the bytes)."""
        data, told = self.sound.copy(), []
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            name, position, size = rng.choice(self.fields)
            value = self._absurd(
                rng, int.from_bytes(data[position : position + size], "little"), size
            )
            data[position : position + size] = np.frombuffer(
                value.to_bytes(size, "little"), np.uint8
            )
            told.append(f"{name} = {value}")
        self._sign(data)
        return ", ".join(told), data

    @staticmethod
    def _absurd(rng, old, size):
        most = (1 << 8 * size) - 1
        near = old + rng.choice((-4096, -8, -2, -1, 1, 2, 3, 8, 4096, 1 << 20))
        values = (0, 1, most, most >> 1, (most >> 1) + 1, most - 7, near, old * 2, old // 2,
                  1 << rng.randrange(8 * size), rng.randrange(most + 1))  # fmt: skip
        return rng.choice(values) & most

    # -- where the numbers stand ---------------------------------------------------------------------

    def _fields(self):
        """Yield (name, first byte, bytes) of every number that a reader believes."""
        yield from _of_struct("header", layout.HEADER, 0)
        table = self.footer.table_position
        for number in range(len(self.parts)):
            yield from _of_struct(f"part {number}", PART_ENTRY, table + 32 * number)
        yield from _of_struct("footer", FOOTER, len(self.sound) - FOOTER_BYTES)
        for kind, dtype in _TABLES.items():
            part = self.parts.get(kind)
            if part is None or (kind is Part.STATISTICS and not self.is_compacted):
                continue
            for number in range(min(part.length // dtype.itemsize, 40)):
                place = part.position + number * dtype.itemsize
                yield from _of_struct(f"{kind.name.lower()} {number}", dtype, place)
        dictionary = self.parts[Part.DICTIONARIES]
        yield "dictionary entry", dictionary.position, 4
        for position in range(dictionary.position, dictionary.position + dictionary.length, 2):
            yield f"dictionary byte {position}", position, 2
        yield from self._of_pages() if self.is_compacted else self._of_chains()
        for number, begin in enumerate(self._groups()):
            yield from self._of_group(f"group {number}", begin)

    def _groups(self):
        """Return where the hash groups begin; none in a file that has none."""
        place = self.parts.get(Part.FILTER)
        if place is None or not place.detail:
            return range(0)
        return range(place.position, place.position + place.length, place.detail)

    def _of_group(self, name, begin):
        """Yield what a group says of itself and of the head, its fingerprints and its entries."""
        header = self.sound[begin:][: layout.HASH_GROUP_BYTES].view(layout.HASH_GROUP)[0]
        yield from _of_struct(name, layout.HASH_GROUP, begin)
        for part in range(int(header["part_count"])):
            place = begin + layout.HASH_GROUP_BYTES + part * PART_ENTRY.itemsize
            yield from _of_struct(f"{name} part {part}", PART_ENTRY, place)
        prints = begin + layout.HASH_GROUP_BYTES + int(header["part_count"]) * PART_ENTRY.itemsize
        end = begin + int(header["length"])
        entries = end - layout.DIRECTORY_ENTRY_BYTES * int(header["entries_here"])
        for place in range(prints, entries - 4, 97):
            yield f"{name} fingerprints {place - prints}", place, 4
        for place in range(entries, end, layout.DIRECTORY_ENTRY_BYTES):
            yield from _of_struct(f"{name} entry", layout.DIRECTORY_ENTRY, place)

    def _of_pages(self):
        for number, (begin, end) in enumerate(self._pages()):
            if number % 7:
                continue
            yield from _of_struct(f"page {number}", layout.PAGE_HEADER, begin)
            for column in range(4):
                place = begin + layout.PAGE_HEADER_BYTES + column * layout.PAGE_COLUMN_BYTES
                yield from _of_struct(f"page {number} column {column}", layout.PAGE_COLUMN, place)
            for place in range(begin + 60, end - 8, 61):
                yield f"page {number} byte {place - begin}", place, 4

    def _of_chains(self):
        """Slots, links, tags and batch records, and digits of the statistics."""
        statistics = self.parts[Part.STATISTICS]
        for place in range(layout.HEADER_BYTES, layout.HEADER_BYTES + 256, 4):
            yield "slot", place, 4
        first = layout.rows_position(64)
        for place in range(first, first + 40 * 1500, 4):
            yield f"row word {place}", place, 4
        for place in range(statistics.position, statistics.position + statistics.length):
            if chr(self.sound[place]).isdigit():
                yield f"digit {place}", place, 1

    def _pages(self):
        part = self.parts[Part.DIRECTORY]
        entries = self._part(part).view(layout.DIRECTORY_ENTRY)
        ends = entries["position"].tolist()
        return list(pairwise(ends))

    # -- checksums -------------------------------------------------------------------------------------

    def _sign(self, data):
        """Make every checksum anew, from the inside out."""
        if self.is_compacted:
            self._sign_pages(data)
            copy = self.parts[Part.HEADER_COPY]
            data[copy.position : copy.position + copy.length] = data[: copy.length]
            _sign_header(data, 0)
            data[copy.position : copy.position + copy.length] = data[: copy.length]
        else:
            _sign_header(data, 0)
            self._sign_blocks(data)
        for number, part in enumerate(self.parts.values()):
            if part not in self.covered:
                continue
            entry = data[self.footer.table_position + 32 * number :][:32].view(PART_ENTRY)
            begin, length = int(entry["position"][0]), int(entry["length"][0])
            kind = int(entry["kind"][0])
            if begin + length <= len(data) and kind in set(Part):
                entry["crc"] = checksum(
                    data[begin : begin + length], unit_seed(self.uuid, Part(kind))
                )
        footer = data[-FOOTER_BYTES:].view(FOOTER)
        begin, count = int(footer["table_position"][0]), int(footer["part_count"][0])
        if count <= PART_COUNT_MAX and begin + 32 * count <= len(data):
            table = data[begin : begin + 32 * count]
            footer["table_crc"] = checksum(table, unit_seed(self.uuid, Part.PART_TABLE))
        footer["crc"] = 0
        footer["crc"] = checksum(footer.tobytes(), unit_seed(self.uuid, Part.FOOTER))

    def _sign_pages(self, data):
        for number, (begin, end) in enumerate(self._pages()):
            seed = unit_seed(self.uuid, Part.PAGE, number)
            data[begin : begin + 4] = _u4(checksum(data[begin + 4 : end], seed))
        directory, sums = self.parts[Part.DIRECTORY], self.parts[Part.CHECKSUMS]
        for number in range(sums.length // 4):
            block = data[directory.position : directory.position + directory.length]
            block = block[4096 * number : 4096 * (number + 1)]
            place = sums.position + 4 * number
            data[place : place + 4] = _u4(
                checksum(block, unit_seed(self.uuid, Part.DIRECTORY, number))
            )
        partitions, filters = self.parts[Part.FILTER_PARTITIONS], self.parts[Part.FILTER]
        rows = data[partitions.position :][: partitions.length].view(FILTER_PARTITION)
        for number, row in enumerate(rows):
            begin = int(row["position"])
            size = int(row["segment_length"]) * (int(row["segment_count"]) + 3) * 2
            if begin + size <= filters.length:
                units = data[filters.position + begin :][:size]
                row["crc"] = checksum(units, unit_seed(self.uuid, Part.FILTER, number))
        for number, begin in enumerate(self._groups()):
            self._sign_group(data, number, begin)

    def _sign_group(self, data, number, begin):
        seed = unit_seed(self.uuid, Part.HASH_GROUP, number)
        group = data[begin : begin + self.parts[Part.FILTER].detail]
        header = group[: layout.HASH_GROUP_BYTES].view(layout.HASH_GROUP)
        length = int(header["length"][0])
        if length <= len(group):
            size = layout.DIRECTORY_ENTRY_BYTES * int(header["entries_here"][0])
            header["entries_crc"] = checksum(group[max(0, length - size) : length], seed)
            header["crc"] = checksum(group[4:length], seed)

    def _sign_blocks(self, data):
        sums = self.parts[Part.BLOCK_CHECKSUMS]
        for number in range(sums.length // 4):
            block = data[4096 * (number + 1) : 4096 * (number + 2)]
            seed = unit_seed(self.uuid, Part.BLOCK_CHECKSUMS, number)
            place = sums.position + 4 * number
            data[place : place + 4] = _u4(checksum(block, seed))

    def _read(self, position, length):
        return self.sound[position : position + length].tobytes()

    def _part(self, part):
        return self.sound[part.position : part.position + part.length]


def _of_struct(name, dtype, position):
    for field in dtype.names:
        kind, offset = dtype.fields[field][:2]
        if field not in _KEPT and kind.kind in "iu":
            yield f"{name} {field}", position + offset, kind.itemsize


def _sign_header(data, position):
    header = data[position : position + layout.HEADER_BYTES]
    crc = layout.HEADER.fields["crc"][1]
    header[crc : crc + 4] = 0
    signed = header.copy()
    signed[layout.PREDECESSOR_POSITION :] = 0
    header[crc : crc + 4] = _u4(google_crc32c.value(signed.tobytes()))


def _u4(value):
    return np.frombuffer(value.to_bytes(4, "little"), np.uint8)


# -- what is done with them ----------------------------------------------------------------------------


class ForgedSealed(Sealed):
    """A sealed chained file: opened, asked, walked, checked."""

    compacted = False

    def use(self, data):
        self.files.place(PATH, data)
        reader = ChainedFile.open_sealed(self.files, PATH)
        self.ask(reader)
        np.concatenate(list(reader.rows_in_hash_order()))
        reader.check()


class ForgedCompacted(Compacted):
    """A compacted file here: asked, walked, checked as `tierdex verify` does."""

    compacted = True

    def use(self, data):
        self.files.place(PATH, data)
        check_file(self.files, PATH)
        reader = CompactedFile.open_local(self.files, PATH)
        self.ask(reader)
        for number in range(0, len(self.lookups.hashes), 97):
            find_all(reader, self.lookup(number))
        for _ in reader.rows_in_hash_order():
            pass
        reader.row_bounds()
        reader.end_offsets()
        reader.topics.count("")
        reader.extra.get("begin_ms")


class ForgedPublished(Published):
    """The same in a store, by a row of the manifest that fits."""

    compacted = True

    def use(self, data):
        self.store.data = data
        crc = int(data[-FOOTER_BYTES:].view(FOOTER)["crc"][0])
        self.forge_row(crc)
        self.ask_published(self.open())


class ForgedGroups(InGroups):
    """A file in a store, by single hash groups; a group that is refused is named."""

    compacted = True

    def use(self, data):
        self.store.data = data
        self.forge_row(int(data[-FOOTER_BYTES:].view(FOOTER)["crc"][0]))
        self.turn = (self.turn + 1) % self.row.groups.group_count
        try:
            self.ask_group(self.turn)
        except CorruptFileError as error:
            if error.path != self.row.object_key:
                raise AssertionError("a refused group is not named") from error
            raise


class ForgedStream(Streamed):
    """The same file, its rows read in order as a merge does."""

    compacted = True

    def use(self, data):
        self.store.data = data
        self.forge_row(int(data[-FOOTER_BYTES:].view(FOOTER)["crc"][0]))
        self.read_all()


FORMS = (ForgedSealed, ForgedCompacted, ForgedPublished, ForgedGroups, ForgedStream)
_MADE = {}
_MEMORY_BYTES = 512 << 20  # that no file of 70 KB may cost


def forge(count, seed):
    """Use `count` forged files; return how often each outcome came. Raises what is a finding."""
    outcomes, before = Counter(), _most_memory()
    for number in range(count):
        kind = FORMS[number % len(FORMS)]
        if kind not in _MADE:
            form = kind(3)
            _MADE[kind] = form, Forger(form.damages.sound, compacted=kind.compacted)
        form, forger = _MADE[kind]
        told, data = forger.make(random.Random(f"{seed}:{number}"))
        try:
            form.use(data)
            outcomes["used"] += 1
        except REFUSALS:
            outcomes["refused"] += 1
        except Exception as error:
            error.add_note(f"{kind.__name__} {number} of seed {seed}: {told}")
            raise
        assert _most_memory() - before < _MEMORY_BYTES, (kind.__name__, number, seed, told)
    return outcomes


def _most_memory():
    """Return the most memory (bytes) that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
