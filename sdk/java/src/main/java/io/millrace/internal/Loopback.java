package io.millrace.internal;

import io.millrace.MillraceException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.DirectoryStream;
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
    private static final int STATE = 3;
    private static final int USER = 7;
    private static final int INODE = 9;
    /** A socket that asks for a connection, which it may never get. */
    private static final String SYN_SENT = "02";
    /** The descriptors of this program. */
    private static final Path DESCRIPTORS = Path.of("/proc/self/fd");

    private Loopback() {}

    /** The user who runs this program. */
    static Integer ownUser() {
        try {
            return (Integer) Files.getAttribute(Path.of("/proc/self"), "unix:uid");
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Refuses a host that does not belong to this user; {@code ours} is the address of a socket of this program. */
    static void check(InetSocketAddress theirs, InetSocketAddress ours) {
        String[] other = socket(theirs, ours);
        // After a reset, another program may connect from the same port. What the table says is about this program's connection if that
        // one still stands.
        String[] own = socket(ours, theirs);
        if (other != null && (own == null || !isOwn(own[INODE]))) {
            throw new MillraceException("MR6123", "the host closed the connection");
        }
        Integer user = other == null ? null : Integer.valueOf(other[USER]);
        if (user == null) {
            throw new MillraceException("MR6163", "the kernel does not report whose process listens at " + theirs);
        }
        if (!user.equals(ownUser())) {
            throw new MillraceException("MR6163", "a process of user " + user + " listens at " + theirs + ", not one of user " + ownUser());
        }
    }

    /** The connected socket at {@code local}, as the kernel lists it; null if there is none. */
    private static String[] socket(InetSocketAddress local, InetSocketAddress remote) {
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
                if (columns.length > INODE && same(columns[LOCAL], local) && same(columns[REMOTE], remote) && !columns[INODE].equals("0")
                        && !columns[STATE].equals(SYN_SENT)) {
                    return columns;
                }
            }
        }
        return null;
    }

    /** Whether this program has the socket with this inode. */
    private static boolean isOwn(String inode) {
        String wanted = "socket:[" + inode + "]";
        try (DirectoryStream<Path> descriptors = Files.newDirectoryStream(DESCRIPTORS)) {
            for (Path descriptor : descriptors) {
                if (points(descriptor, wanted)) {
                    return true;
                }
            }
            return false;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static boolean points(Path descriptor, String to) {
        try {
            return Files.readSymbolicLink(descriptor).toString().equals(to);
        } catch (IOException closed) {
            return false;
        }
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
