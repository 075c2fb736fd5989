package io.millrace;

import io.millrace.internal.Json;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/** A host that ends with this program, with a namespace in a temporary directory. */
final class PrivateHost implements AutoCloseable {
    private static final String PROGRAM = "MILLRACE_BIN";
    private static final long START_S = 60;
    private static final long END_S = 30;
    private static final int TOLD_MAX = 1000;
    /** Ends the host when the pipe from this program is closed, however this program ends: Ctrl-C reaches the shell, too. */
    private static final String GUARD = "trap '' HUP INT; \"$@\" </dev/null & host=$!; exec >&-; read -r line; kill -TERM $host; wait $host";

    private final Path folder;
    private final Process guard;
    private final String socket;
    private final Thread hook = new Thread(this::end, "millrace-private-host");

    PrivateHost() {
        String program = System.getenv().getOrDefault(PROGRAM, "millrace");
        Process started = null;
        try {
            folder = Files.createTempDirectory("millrace-");
            String namespace = folder.resolve("local").toString();
            run(program, "-n", namespace, "init", "--bare", "--durability", "memory");
            List<String> command = new ArrayList<>(List.of("sh", "-c", GUARD, "sh"));
            command.addAll(List.of(program, "--json", "-n", namespace, "serve", "--listen", "none", "--drain", "1s"));
            started = builder(command).redirectError(log()).start();
            BufferedReader said = started.inputReader(StandardCharsets.UTF_8);
            Process waiting = started;
            Thread late = new Thread(() -> {
                try {
                    if (!waiting.waitFor(START_S, TimeUnit.SECONDS)) {
                        waiting.descendants().forEach(ProcessHandle::destroyForcibly);
                        waiting.destroyForcibly();
                    }
                } catch (InterruptedException error) {
                    // It has started.
                }
            });
            late.setDaemon(true);
            late.start();
            String line = said.readLine();
            late.interrupt();
            if (line == null) {
                throw new IOException("it printed nothing");
            }
            socket = "unix:" + Json.object(line).get("socket");
        } catch (IOException error) {
            if (started != null) {
                started.destroy();
            }
            throw new MillraceException("MR5001", "the private host did not start: " + error.getMessage() + told(), error);
        }
        guard = started;
        Runtime.getRuntime().addShutdownHook(hook);
    }

    private File log() {
        return folder.resolve("host.log").toFile();
    }

    private String told() {
        try {
            String text = folder == null ? "" : Files.readString(log().toPath());
            return text.isBlank() ? "" : "; " + text.substring(Math.max(0, text.length() - TOLD_MAX)).strip();
        } catch (IOException error) {
            return "";
        }
    }

    private static ProcessBuilder builder(List<String> command) {
        ProcessBuilder builder = new ProcessBuilder(command);
        builder.environment().remove("MILLRACE_NAMESPACE");
        return builder;
    }

    private void run(String... command) throws IOException {
        Process process = builder(List.of(command)).redirectErrorStream(true).redirectOutput(log()).start();
        process.getOutputStream().close();
        boolean interrupted = false;
        while (true) {
            try {
                if (process.waitFor() != 0) {
                    throw new IOException("'" + String.join(" ", command) + "' failed");
                }
                break;
            } catch (InterruptedException error) {
                interrupted = true;
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /** Its address. */
    String address() {
        return socket;
    }

    private void end() {
        try {
            guard.getOutputStream().close();
            if (!guard.waitFor(END_S, TimeUnit.SECONDS)) {
                guard.descendants().forEach(ProcessHandle::destroyForcibly);
                guard.destroyForcibly();
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        } catch (InterruptedException error) {
            guard.destroy();
            Thread.currentThread().interrupt();
        }
        try (Stream<Path> files = Files.walk(folder)) {
            for (Path file : files.sorted(Comparator.reverseOrder()).toList()) {
                Files.deleteIfExists(file);
            }
        } catch (IOException | UncheckedIOException error) {
            // The system removes temporary directories.
        }
    }

    @Override
    public void close() {
        Runtime.getRuntime().removeShutdownHook(hook);
        end();
    }
}
