# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Processes, or threads, that solve a problem together."""

from __future__ import annotations

import abc
import collections.abc
import typing


class Communicator(abc.ABC):
    """One end of an exchange between ranks, to derive from; see docs/scale.md.

    All ranks call the same methods in the same order. Methods may raise: the
    exception ends the solve on this rank and is raised by solve(); abort() then
    tells the others.

        class OfTorch(ceres_ext.Communicator):
            rank = torch.distributed.get_rank()
            size = torch.distributed.get_world_size()

            def all_gather(self, mine):
                parts = [None] * self.size
                torch.distributed.all_gather_object(parts, mine)
                return parts
    """

    rank: int
    """From 0 on."""
    size: int
    """The number of ranks."""

    @abc.abstractmethod
    def all_gather(self, mine: bytes) -> collections.abc.Sequence[bytes]:
        """Returns what each rank has given, of one size, that of rank 0 first."""

    def all_to_all(
        self, parts: collections.abc.Sequence[bytes]
    ) -> collections.abc.Sequence[bytes]:
        """Returns part `rank` of each rank's parts, that of rank 0 first.

        The default calls all_gather, which moves `size` times as much.
        """
        bytes_of_part = len(parts[0])
        begin = self.rank * bytes_of_part
        return [
            one[begin : begin + bytes_of_part]
            for one in self.all_gather(b"".join(parts))
        ]

    def abort(self, message: str) -> None:
        """Makes the calls of all ranks raise, those that wait now included.

        Called when the solve fails on this rank alone; the others otherwise wait
        until they give up by themselves. The default does nothing.
        """


class MpiCommunicator(Communicator):
    """A communicator of mpi4py.

    comm: for example mpi4py.MPI.COMM_WORLD, of which this makes a copy. All of its
    ranks make one. A solve that fails on one rank alone ends the processes of all
    (MPI_Abort) with the message.

        summary = ceres_ext.solve(
            problem, communicator=ceres_ext.MpiCommunicator(MPI.COMM_WORLD))
    """

    def __init__(self, comm: typing.Any) -> None:
        self._comm = comm.Dup()
        self.rank = int(comm.Get_rank())
        self.size = int(comm.Get_size())

    def all_gather(self, mine: bytes) -> list[bytes]:
        everything = bytearray(len(mine) * self.size)
        self._comm.Allgather(mine, everything)
        return [
            bytes(everything[i * len(mine) : (i + 1) * len(mine)])
            for i in range(self.size)
        ]

    def all_to_all(self, parts: collections.abc.Sequence[bytes]) -> list[bytes]:
        size = len(parts[0])
        received = bytearray(size * self.size)
        self._comm.Alltoall(b"".join(parts), received)
        return [bytes(received[i * size : (i + 1) * size]) for i in range(self.size)]

    def abort(self, message: str) -> None:
        print(f"Rank {self.rank}: {message}", flush=True)
        self._comm.Abort(1)
