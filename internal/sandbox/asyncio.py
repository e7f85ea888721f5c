

def _without_sockets():
    # There are no sockets in the sandbox, and no epoll: a loop wakes itself by a pipe and waits by poll.
    import os
    import selectors

    from . import selector_events

    class End:
        def __init__(self, fd):
            self._fd = fd

        def fileno(self):
            return self._fd

        def recv(self, size):
            return os.read(self._fd, size)

        def send(self, data):
            return os.write(self._fd, data)

        def close(self):
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)

    def make_self_pipe(self):
        ends = os.pipe()
        for fd in ends:
            os.set_blocking(fd, False)
        self._ssock, self._csock = End(ends[0]), End(ends[1])
        self._internal_fds += 1
        self._add_reader(self._ssock.fileno(), self._read_from_self)

    selectors.DefaultSelector = selectors.PollSelector
    selector_events.BaseSelectorEventLoop._make_self_pipe = make_self_pipe


_without_sockets()
del _without_sockets
