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

/** Frames of the worker protocol, on descriptor 3. Works that arrive while an answer is awaited wait here. */
final class HostChannel {
    private static final int DESCRIPTOR = 3;
    private static final int VERSION = 4;
    private static final int WINDOW_BYTES = 256 << 10;
    private static final int HEAD_BYTES = 16;
    /** What WORK has before its name: seqno, id, attempt, flags. */
    private static final int FIXED_BYTES = 32;
    private static final int BODY_BYTES_MAX = (16 << 20) + 4096;
    /** The kinds of work: a run for a record, and a method of a shared object. */
    static final int RUN = 1;
    static final int STEP = 2;
    private static final int WORK = 1;
    private static final int ANSWER = 2;
    private static final int HELLO = 16;
    private static final int APPEND = 18;
    private static final int DONE = 19;
    private static final int GET = 20;
    private static final int CALL = 25;
    private static final int FIELDS = 27;
    private static final int CLASS = 28;
    private static final byte[] NOTHING = new byte[0];

    /**
     * What the host has this worker do.
     *
     * @param kind a run or a step
     * @param name the log of the record, or the pool of the object
     * @param record the record, or the call
     */
    record Work(int kind, String name, byte[] record) {}

    private record Received(int kind, int nameBytes, int work, int number, byte[] body) {}

    private final DataInputStream in;
    private final FileOutputStream out;
    private final Queue<Received> works = new ArrayDeque<>();
    /** The work in progress, which every frame names. */
    private int current;
    private final ByteArrayOutputStream staged = new ByteArrayOutputStream();

    HostChannel() throws IOException {
        FileDescriptor descriptor = descriptor();
        in = new DataInputStream(new BufferedInputStream(new FileInputStream(descriptor), 64 << 10));
        out = new FileOutputStream(descriptor);
        // window, works at once, a bit for each kind of work, features
        ByteBuffer hello = ByteBuffer.allocate(12).order(ByteOrder.LITTLE_ENDIAN).putInt(WINDOW_BYTES);
        hello.putShort((short) 1).putShort((short) (RUN | STEP)).putInt(0);
        stage(HELLO, "", VERSION, hello.array());
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

    private void stage(int kind, String name, int number, byte[] payload) {
        byte[] text = name.getBytes(StandardCharsets.UTF_8);
        ByteBuffer head = ByteBuffer.allocate(HEAD_BYTES).order(ByteOrder.LITTLE_ENDIAN);
        head.putInt(text.length + payload.length).put((byte) kind).put((byte) 0).putShort((short) text.length);
        head.putInt(current).putInt(number);
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
        return new Received(kind, nameBytes, fields.getInt(), fields.getInt(), body);
    }

    /** Begins the next work; null when the host needs this worker no more. */
    synchronized Work next() throws IOException {
        Received received = works.poll();
        try {
            received = received == null ? receive() : received;
        } catch (EOFException error) {
            return null;
        }
        int end = FIXED_BYTES + received.nameBytes;
        if (received.kind != WORK) {
            throw new IOException("a frame of kind " + received.kind);
        }
        current = received.work;
        String name = new String(received.body, FIXED_BYTES, received.nameBytes, StandardCharsets.UTF_8);
        return new Work(received.number, name, Arrays.copyOfRange(received.body, end, received.body.length));
    }

    /** Appends a record when the run ends. */
    synchronized void append(String log, byte[] record) {
        stage(APPEND, log, 0, record);
    }

    /** Ends the work well; a step has a result. */
    synchronized void done(byte[] result) throws IOException {
        stage(DONE, "", 0, result);
        flush();
    }

    /** Ends the work with an error. */
    synchronized void failed(String code, String detail) throws IOException {
        stage(DONE, code, 0, detail.getBytes(StandardCharsets.UTF_8));
        flush();
    }

    /** Calls a shared object. The host answers one call at a time. */
    byte[] call(byte[] call) {
        return ask(CALL, "", call);
    }

    /** A record of a log. */
    byte[] get(String log, long seqno) {
        return ask(GET, log, packed(seqno));
    }

    /** The fields of the object whose method runs. */
    byte[] fields() {
        return ask(FIELDS, "", NOTHING);
    }

    /** The class of this number of the pool of that object. */
    byte[] described(long number) {
        return ask(CLASS, "", packed(number));
    }

    private static byte[] packed(long number) {
        return ByteBuffer.allocate(Long.BYTES).order(ByteOrder.LITTLE_ENDIAN).putLong(number).array();
    }

    private synchronized byte[] ask(int kind, String name, byte[] payload) {
        try {
            stage(kind, name, 0, payload);
            flush();
            Received received = receive();
            while (received.kind != ANSWER) {
                works.add(received);
                received = receive();
            }
            int named = received.nameBytes;
            if (named != 0) {
                String code = new String(received.body, 0, named, StandardCharsets.UTF_8);
                throw new MillraceException(code, new String(received.body, named, received.body.length - named, StandardCharsets.UTF_8));
            }
            return received.body;
        } catch (IOException error) {
            throw new MillraceException("MR6123", "the host ended this worker: " + error, error);
        }
    }
}
