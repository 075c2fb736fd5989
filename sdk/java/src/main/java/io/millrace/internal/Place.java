package io.millrace.internal;

import io.millrace.MillraceException;
import java.nio.file.Path;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The location of a host: its Unix socket, or an address.
 *
 * @param socket the path of the Unix socket; null for an address
 * @param host the name or number of the machine
 * @param port its port
 * @param namespace the name of the namespace there; empty for the only one
 */
public record Place(Path socket, String host, int port, String namespace) {
    private static final String UNIX = "unix:";
    private static final String SCHEME = "mr://";
    private static final int PORT = 7070;
    private static final String SOCKET = "socket";
    private static final Pattern ADDRESS = Pattern.compile("mr://(?:\\[([0-9a-fA-F:.]+)\\]|([A-Za-z0-9._-]{1,253}))(?::([0-9]{1,5}))?/([^/]+)");
    private static final Pattern NAME = Pattern.compile("[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}");

    /** Parses a location: {@code unix:PATH}, {@code mr://HOST[:PORT]/NAMESPACE}, or a namespace's directory. */
    public static Place parse(String text) {
        if (text.startsWith(UNIX)) {
            if (text.length() == UNIX.length()) {
                throw new MillraceException("MR6001", "'unix:' must be followed by a path");
            }
            return new Place(Path.of(text.substring(UNIX.length())).toAbsolutePath(), "", 0, "");
        }
        if (!text.startsWith(SCHEME)) {
            return new Place(Path.of(text).toAbsolutePath().resolve(SOCKET), "", 0, "");
        }
        Matcher address = ADDRESS.matcher(text);
        if (!address.matches() || !NAME.matcher(address.group(4)).matches()) {
            throw new MillraceException("MR6001", "'" + text + "' is not an address such as mr://HOST:PORT/NAMESPACE");
        }
        int port = address.group(3) == null ? PORT : Integer.parseInt(address.group(3));
        if (port < 1 || port > 65535) {
            throw new MillraceException("MR6001", "'" + text + "' is not an address: a port is from 1 to 65535");
        }
        return new Place(null, address.group(1) == null ? address.group(2) : address.group(1), port, address.group(4));
    }

    /** The address without the namespace. */
    public String authority() {
        return (host.contains(":") ? "[" + host + "]" : host) + ":" + port;
    }

    @Override
    public String toString() {
        if (socket != null) {
            return UNIX + socket;
        }
        return SCHEME + authority() + "/" + namespace;
    }
}
