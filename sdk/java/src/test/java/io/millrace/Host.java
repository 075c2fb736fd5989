package io.millrace;

import io.millrace.internal.Json;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** A real host for a test, with a namespace in a directory of the test. */
final class Host implements AutoCloseable {
    static final Path ROOT = Path.of("").toAbsolutePath().getParent().getParent();
    private static final long END_S = 60;

    final Path namespace;
    private Process process;
    private Map<String, Object> said;

    private Host(Path namespace) {
        this.namespace = namespace;
    }

    static String binary() {
        Path binary = Path.of(System.getenv("MILLRACE_BIN"));
        if (!Files.isExecutable(binary)) {
            throw new IllegalStateException(binary + " is not there; `cargo build -p millrace-cli` makes it, or set MILLRACE_BIN");
        }
        return binary.toString();
    }

    /** Creates a namespace and serves it. */
    static Host start(Path folder) throws IOException, InterruptedException {
        Host host = create(folder);
        host.serve("127.0.0.1:0");
        return host;
    }

    /** Creates a namespace. */
    static Host create(Path folder) throws IOException, InterruptedException {
        Host host = new Host(Files.createDirectories(folder).resolve("ns"));
        host.run("init", "--bare", "--durability", "memory", "--segment-size", "1MiB");
        return host;
    }

    /** Runs a command on the namespace; returns what it printed. */
    String run(String... command) throws IOException, InterruptedException {
        List<String> all = new ArrayList<>(List.of(binary(), "-n", namespace.toString()));
        all.addAll(List.of(command));
        Process ran = new ProcessBuilder(all).redirectErrorStream(true).start();
        ran.getOutputStream().close();
        String printed = new String(ran.getInputStream().readAllBytes());
        if (ran.waitFor() != 0) {
            throw new IllegalStateException(all + ": " + printed);
        }
        return printed;
    }

    void serve(String listen, String... options) throws IOException {
        List<String> command = new ArrayList<>(List.of(binary(), "--json", "-n", namespace.toString(), "serve", "--name", "farm"));
        command.addAll(List.of("--listen", listen));
        command.addAll(List.of(options));
        process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.DISCARD).start();
        String line = process.inputReader().readLine();
        if (line == null) {
            throw new IOException("the host said nothing");
        }
        said = Json.object(line);
    }

    String socket() {
        return "unix:" + said.get("socket");
    }

    String address() {
        return (String) ((List<?>) said.get("addresses")).get(0);
    }

    /** Kills the workers of Java that the host has; returns how many. */
    long killWorkers() {
        return process.descendants().filter(Host::isWorker).filter(ProcessHandle::destroyForcibly).count();
    }

    private static boolean isWorker(ProcessHandle process) {
        try {
            return Files.readString(Path.of("/proc/" + process.pid() + "/cmdline")).endsWith("io.millrace.worker.Worker\0");
        } catch (IOException error) {
            return false;
        }
    }

    void kill() throws InterruptedException {
        process.destroyForcibly().waitFor();
    }

    @Override
    public void close() {
        process.destroy();
        try {
            if (!process.waitFor(END_S, TimeUnit.SECONDS)) {
                process.destroyForcibly();
            }
        } catch (InterruptedException error) {
            process.destroyForcibly();
            Thread.currentThread().interrupt();
        }
    }
}
