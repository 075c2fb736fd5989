package io.millrace;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Logs beyond the conformance script: lost hosts, capabilities, errors. */
class LogTest {
    private static final Duration PATIENCE = Duration.ofMinutes(2);

    @TempDir
    Path folder;

    @Test
    void aTailAndKeyedAppendsGoOnAfterTheHostWasKilled() throws Exception {
        try (Host host = Host.start(folder); Millrace farm = Millrace.at(host.namespace.toString()).patience(PATIENCE).connect()) {
            Log log = farm.createLog("raw", 100);
            try (Tail tail = log.tail(1)) {
                log.append("one", AppendOptions.key("1"));
                assertEquals("one", tail.next(PATIENCE).orElseThrow().text());
                host.kill();
                Thread append = new Thread(() -> log.append("two", AppendOptions.key("2")));
                append.start();
                host.serve("none");
                assertEquals("two", tail.next(PATIENCE).orElseThrow().text());
                append.join();
                Receipt again = log.append("two", AppendOptions.key("2"));
                assertEquals(2, again.seqno(), "the key was used, so nothing was appended");
                assertEquals(new Tail.Cursor(tail.cursor().incarnation(), 3), tail.cursor());
            }
        }
    }

    @Test
    void anAppendWithTheTokenOfAFormerOwnerIsRefused() throws Exception {
        try (Host host = Host.start(folder); Millrace farm = Millrace.connect(host.address())) {
            Log log = farm.createLog("raw", 100);
            long former = farm.lock("tick").acquire();
            farm.lock("tick").unlock();
            long token = farm.lock("tick").acquire();
            log.append("owner", AppendOptions.DEFAULT.withFence("tick", token));
            MillraceException error = assertThrows(
                    MillraceException.class, () -> log.append("former", AppendOptions.DEFAULT.withFence("tick", former)));
            assertEquals("MR7127", error.code());
            assertEquals(MillraceException.Kind.CONFLICT, error.kind());
            assertEquals(2, log.append("owner", AppendOptions.key("k").withFence("tick", token)).seqno());
        }
    }

    @Test
    void errorsSayWhatTheyMeanAndWhatToDo() throws Exception {
        try (Host host = Host.start(folder); Millrace farm = Millrace.connect(host.address())) {
            assertEquals("farm", farm.name());
            MillraceException error = assertThrows(MillraceException.class, () -> farm.log("none").append("x"));
            assertEquals("MR2101", error.code());
            assertEquals(MillraceException.Kind.NOT_FOUND, error.kind());
            assertTrue(error.detail().contains("none") && !error.reason().isEmpty(), error.toString());
            assertTrue(error.toString().contains(error.remedy()) && !error.remedy().isEmpty(), error.toString());
            error = assertThrows(MillraceException.class, () -> farm.createLog("a log", 10));
            assertEquals(MillraceException.Kind.INVALID, error.kind());
            error = assertThrows(MillraceException.class, () -> farm.appendMany(List.of()));
            assertFalse(error.code().isEmpty());
        }
        for (String bad : List.of("mr://", "mr://a", "mr://a/b/c", "mr://a:0/b", "mr://[x]/b", "unix:")) {
            assertEquals("MR6001", assertThrows(MillraceException.class, () -> Millrace.connect(bad), bad).code(), bad);
        }
        MillraceException error = assertThrows(MillraceException.class, () -> Millrace.connect(folder.resolve("nothing").toString()));
        assertEquals("MR6121", error.code());
        assertEquals(MillraceException.Kind.UNAVAILABLE, error.kind());
    }

    @Test
    void aCapabilityOpensTheChannelAndLimitsWhatIsPermitted() throws Exception {
        try (Host host = Host.start(folder)) {
            try (Millrace farm = Millrace.connect(host.namespace.toString())) {
                farm.createLog("raw", 100);
                farm.createLog("other", 100);
            }
            Path file = folder.resolve("raw.cap");
            host.run("cap", "issue", "--read", "raw", "--append", "raw", "--out", file.toString());
            try (Millrace farm = Millrace.at(host.address()).capability(file).connect()) {
                assertEquals(1, farm.log("raw").append(new byte[100_000]).seqno());
                assertEquals(100_000, farm.log("raw").last().data().length);
                MillraceException error = assertThrows(MillraceException.class, () -> farm.log("other").append("x"));
                assertEquals(MillraceException.Kind.DENIED, error.kind());
            }
            Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rw-r--r--"));
            MillraceException error = assertThrows(MillraceException.class, () -> Millrace.at(host.address()).capability(file).connect());
            assertEquals("MR6165", error.code());
        }
    }
}
