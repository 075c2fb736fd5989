package io.millrace.worker;

import io.millrace.internal.MessagePack;
import io.millrace.space.Raised;
import io.millrace.space.Space;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** The objects of the host that runs this task. The run is the session: an attempt that repeats its calls gets the same answers. */
final class TaskSpace extends Space {
    private static final double NS_PER_S = 1e9;

    private final HostChannel channel;
    private final String application;
    private long count;
    private boolean ended;
    private volatile boolean late;
    private volatile boolean guards;

    TaskSpace(HostChannel channel, String application) {
        this.channel = channel;
        this.application = application;
    }

    /** A thread that outlives its task must not call objects in the next one. */
    synchronized void end() {
        ended = true;
    }

    /** The time of the method is over: it calls no object any more. */
    void expire() {
        late = true;
    }

    private void checkTime() throws Raised {
        if (late) {
            throw new Raised("TimeoutError", "the method did not end in time");
        }
    }

    /** From now on, calls are refused, or no longer: a guard is tried any number of times, so none of its calls would count once. */
    void guard(boolean begins) {
        guards = begins;
    }

    @Override
    public synchronized Answer call(Call call, long timeoutNs) throws Raised {
        if (ended) {
            throw new IllegalStateException("the task is over");
        } else if (guards) {
            throw new IllegalStateException("a guard reads the fields of its own object, and calls no other object");
        }
        checkTime();
        int flags = timeoutNs == 0 ? call.flags() | GIVE_UP : call.flags();
        Object timeout = timeoutNs < 0 ? null : (Object) (timeoutNs / NS_PER_S);
        List<Object> sent = new ArrayList<>(Arrays.asList(++count, bytes(call.type()), bytes(call.key()), bytes(call.method()),
                call.arguments(), call.created(), MessagePack.unsigned(call.incarnation()), flags, bytes(application), timeout));
        if (call.fence() != null) {
            sent.add(List.of(bytes(call.fence().name()), call.fence().token()));
        }
        ByteBuffer answer = ByteBuffer.wrap(channel.call(MessagePack.encode(sent))).order(ByteOrder.LITTLE_ENDIAN);
        checkTime();
        long now = answer.getLong();
        boolean raised = answer.get() != 0;
        byte[] rest = new byte[answer.remaining()];
        answer.get(rest);
        if (!raised) {
            return new Answer(now, rest);
        }
        String[] parts = new String(rest, StandardCharsets.UTF_8).split("\0", 2);
        throw new Raised(parts[0], parts.length > 1 ? parts[1] : "");
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
