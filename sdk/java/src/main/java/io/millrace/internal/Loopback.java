package io.millrace.internal;

import io.millrace.MillraceException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/**
 * The user of the other end of a TCP connection within this machine, as the kernel reports in {@code /proc/net}. A client uses
 * it to detect that another user's program listens on the port of the host.
 */
final class Loopback {
    private static final List<Path> TABLES = List.of(Path.of("/proc/net/tcp"), Path.of("/proc/net/tcp6"));
    private static final int LOCAL = 1;
    private static final int REMOTE = 2;
    private static final int USER = 7;
    private static final int INODE = 9;

    private Loopback() {}

    /** The user who runs this program. */
    static Integer ownUser() {
        try {
            return (Integer) Files.getAttribute(Path.of("/proc/self"), "unix:uid");
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Refuses a host that does not belong to this user. */
    static void check(InetSocketAddress theirs, InetSocketAddress ours) {
        Integer user = holder(theirs, ours);
        if (user == null) {
            throw new MillraceException("MR6163", "the kernel does not report whose process listens at " + theirs);
        }
        if (!user.equals(ownUser())) {
            throw new MillraceException("MR6163", "a process of user " + user + " listens at " + theirs + ", not one of user " + ownUser());
        }
    }

    private static Integer holder(InetSocketAddress theirs, InetSocketAddress ours) {
        for (Path table : TABLES) {
            List<String> lines;
            try {
                lines = Files.readAllLines(table);
            } catch (IOException error) {
                continue;
            }
            for (String line : lines) {
                String[] columns = line.strip().split(" +");
                // A socket without an inode has no owner, so the user in the table is meaningless.
                if (columns.length > INODE && same(columns[LOCAL], theirs) && same(columns[REMOTE], ours) && !columns[INODE].equals("0")) {
                    return Integer.valueOf(columns[USER]);
                }
            }
        }
        return null;
    }

    /** Whether a column of the table, words of 32 bits in the byte order of the machine and then the port, is this address. */
    private static boolean same(String column, InetSocketAddress address) {
        int colon = column.indexOf(':');
        if (colon < 0 || Integer.parseInt(column.substring(colon + 1), 16) != address.getPort()) {
            return false;
        }
        ByteBuffer bytes = ByteBuffer.allocate(colon / 2).order(ByteOrder.nativeOrder());
        for (int at = 0; at + 8 <= colon; at += 8) {
            bytes.putInt(Integer.parseUnsignedInt(column.substring(at, at + 8), 16));
        }
        try {
            // An IPv4 address that is mapped into IPv6 becomes IPv4 here.
            return InetAddress.getByAddress(bytes.array()).equals(address.getAddress());
        } catch (IOException error) {
            return false;
        }
    }
}
