"""Several processes that number invoices, while some of them are killed: no number comes twice.

Run it as it is: it counts on this machine. COORDLOCK_URL takes it to a cluster.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.connection import Connection

import coordlock


def write_invoices(counter: str, numbers: Connection) -> None:
    with coordlock.connect() as client:
        while True:
            numbers.send(client.counter(counter).add())


def main() -> None:
    counter = f"invoices-{os.getpid()}"
    context = multiprocessing.get_context("spawn")
    numbers: list[int] = []
    for _ in range(2):
        offices = []
        for _ in range(3):
            receiver, sender = context.Pipe(duplex=False)
            office = context.Process(target=write_invoices, args=(counter, sender))
            office.start()
            sender.close()
            offices.append((office, receiver))
        for office, receiver in offices:
            numbers += [receiver.recv() for _ in range(20)]
            assert office.pid is not None
            os.kill(office.pid, signal.SIGKILL)
            office.join()
            try:
                while True:
                    numbers.append(receiver.recv())
            except EOFError:
                pass  # that was all it had said
    with coordlock.connect() as client:
        last = client.counter(counter).get()
    assert len(set(numbers)) == len(numbers)
    assert len(numbers) <= last <= len(numbers) + 6  # each may have drawn one and not said so
    print("6 offices were killed while they numbered invoices, and no number was given twice")


if __name__ == "__main__":
    main()
