package io.millrace.worker;

import io.millrace.MillraceException;
import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Queue;

/** Frames of the worker protocol, on descriptor 3. Runs that arrive while an answer is awaited wait here. */
final class HostChannel {
    private static final int DESCRIPTOR = 3;
    private static final int VERSION = 3;
    private static final int WINDOW_BYTES = 256 << 10;
    private static final int HEAD_BYTES = 16;
    /** What RUN has before its name: seqno, id, attempt, flags. */
    private static final int FIXED_BYTES = 32;
    private static final int BODY_BYTES_MAX = (16 << 20) + 4096;
    private static final int ANSWER = 2;
    private static final int HELLO = 16;
    private static final int APPEND = 18;
    private static final int DONE = 19;
    private static final int GET = 20;
    private static final int CALL = 25;

    /**
     * A run of the function.
     *
     * @param serial its number in this worker
     * @param log the log of the record
     * @param record the record
     */
    record Run(long serial, String log, byte[] record) {}

    private record Received(int kind, int nameBytes, long number, byte[] body) {}

    private final DataInputStream in;
    private final FileOutputStream out;
    private final Queue<Received> runs = new ArrayDeque<>();
    private final ByteArrayOutputStream staged = new ByteArrayOutputStream();

    HostChannel() throws IOException {
        FileDescriptor descriptor = descriptor();
        in = new DataInputStream(new BufferedInputStream(new FileInputStream(descriptor), 64 << 10));
        out = new FileOutputStream(descriptor);
        byte[] window = ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(WINDOW_BYTES).array();
        stage(HELLO, "", VERSION, window);
        flush();
    }

    /** The JDK has no way to open a descriptor by its number: the pool's command opens java.io for this class. */
    private static FileDescriptor descriptor() throws IOException {
        try {
            FileDescriptor descriptor = new FileDescriptor();
            Field number = FileDescriptor.class.getDeclaredField("fd");
            number.setAccessible(true);
            number.setInt(descriptor, DESCRIPTOR);
            return descriptor;
        } catch (ReflectiveOperationException error) {
            throw new IOException("this process is not a worker of a host", error);
        }
    }

    private void stage(int kind, String name, long number, byte[] payload) {
        byte[] text = name.getBytes(StandardCharsets.UTF_8);
        ByteBuffer head = ByteBuffer.allocate(HEAD_BYTES).order(ByteOrder.LITTLE_ENDIAN);
        head.putInt(text.length + payload.length).put((byte) kind).put((byte) 0).putShort((short) text.length).putLong(number);
        staged.writeBytes(head.array());
        staged.writeBytes(text);
        staged.writeBytes(payload);
    }

    private void flush() throws IOException {
        staged.writeTo(out);
        staged.reset();
    }

    private Received receive() throws IOException {
        byte[] head = new byte[HEAD_BYTES];
        in.readFully(head);
        ByteBuffer fields = ByteBuffer.wrap(head).order(ByteOrder.LITTLE_ENDIAN);
        int length = fields.getInt();
        int kind = fields.get();
        fields.get();
        int nameBytes = fields.getShort() & 0xffff;
        if (length < 0 || length > BODY_BYTES_MAX) {
            throw new IOException("a frame of " + length + " bytes");
        }
        byte[] body = new byte[length];
        in.readFully(body);
        return new Received(kind, nameBytes, fields.getLong(), body);
    }

    /** The next run; null when the host needs this worker no more. */
    synchronized Run next() throws IOException {
        Received received = runs.poll();
        try {
            received = received == null ? receive() : received;
        } catch (EOFException error) {
            return null;
        }
        int end = FIXED_BYTES + received.nameBytes;
        String log = new String(received.body, FIXED_BYTES, received.nameBytes, StandardCharsets.UTF_8);
        return new Run(received.number, log, Arrays.copyOfRange(received.body, end, received.body.length));
    }

    /** Appends a record when the run ends. */
    synchronized void append(String log, byte[] record) {
        stage(APPEND, log, 0, record);
    }

    /** Ends a run; without a code, well. */
    synchronized void done(long serial, String code, String detail) throws IOException {
        stage(DONE, code, serial, detail.getBytes(StandardCharsets.UTF_8));
        flush();
    }

    /** Calls a shared object. The host answers one call at a time. */
    byte[] call(byte[] call) {
        return ask(CALL, "", 0, call);
    }

    /** A record of a log. */
    byte[] get(String log, long seqno) {
        return ask(GET, log, seqno, new byte[0]);
    }

    private synchronized byte[] ask(int kind, String name, long number, byte[] payload) {
        try {
            stage(kind, name, number, payload);
            flush();
            Received received = receive();
            while (received.kind != ANSWER) {
                runs.add(received);
                received = receive();
            }
            if (received.number != 0) {
                throw new MillraceException("MR" + received.number, new String(received.body, StandardCharsets.UTF_8));
            }
            return received.body;
        } catch (IOException error) {
            throw new MillraceException("MR6123", "the host ended this worker: " + error, error);
        }
    }
}
