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
public final class Host implements AutoCloseable {
    public static final Path ROOT = Path.of("").toAbsolutePath().getParent().getParent();
    private static final long END_S = 60;

    public final Path namespace;
    private Process process;
    private Map<String, Object> said;

    private Host(Path namespace) {
        this.namespace = namespace;
    }

    public static String binary() {
        Path binary = Path.of(System.getenv("MILLRACE_BIN"));
        if (!Files.isExecutable(binary)) {
            throw new IllegalStateException(binary + " is not there; `cargo build -p millrace-cli` makes it, or set MILLRACE_BIN");
        }
        return binary.toString();
    }

    /** Creates a namespace and serves it. */
    public static Host start(Path folder) throws IOException, InterruptedException {
        Host host = create(folder);
        host.serve("127.0.0.1:0");
        return host;
    }

    /** Creates a namespace. */
    public static Host create(Path folder) throws IOException, InterruptedException {
        Host host = new Host(Files.createDirectories(folder).resolve("ns"));
        host.run("init", "--bare", "--durability", "memory", "--segment-size", "1MiB");
        return host;
    }

    /** Three hosts of a cluster, all voters, each with one of these labels if they are given. */
    public static List<Host> cluster(Path folder, String... labels) throws IOException, InterruptedException {
        Files.createDirectories(folder);
        Path secret = folder.resolve("secret");
        List<Host> hosts = List.of(create(folder.resolve("a")), create(folder.resolve("b")), create(folder.resolve("c")));
        Host first = hosts.get(0);
        first.run("cluster", "init", "--site", "campus");
        first.run("cluster", "secret", "--out", secret.toString());
        for (Host host : hosts) {
            String label = labels.length == 0 ? "" : labels[hosts.indexOf(host)];
            List<String> options = new ArrayList<>(List.of("--election", "500ms"));
            options.addAll(label.isEmpty() ? List.of() : List.of("--label", label));
            if (host != first) {
                options.addAll(List.of("--join", first.address(), "--cluster-secret", secret.toString(), "--site", "lab"));
            }
            host.serve("127.0.0.1:0", options.toArray(String[]::new));
        }
        while (voters(first) < hosts.size()) {
            Thread.sleep(50);
        }
        return hosts;
    }

    private static long voters(Host first) throws IOException, InterruptedException {
        return ((List<?>) Json.object(first.run("--json", "cluster", "ls")).get("hosts")).stream()
                .filter(host -> !"learner".equals(((Map<?, ?>) host).get("role"))).count();
    }

    /** Runs a command on the namespace; returns what it printed. */
    public String run(String... command) throws IOException, InterruptedException {
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

    public void serve(String listen, String... options) throws IOException {
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

    public String socket() {
        return "unix:" + said.get("socket");
    }

    public String address() {
        return (String) ((List<?>) said.get("addresses")).get(0);
    }

    /** Kills the workers of Java that the host has; returns how many. */
    public long killWorkers() {
        return process.descendants().filter(Host::isWorker).filter(ProcessHandle::destroyForcibly).count();
    }

    private static boolean isWorker(ProcessHandle process) {
        try {
            return Files.readString(Path.of("/proc/" + process.pid() + "/cmdline")).endsWith("io.millrace.worker.Worker\0");
        } catch (IOException error) {
            return false;
        }
    }

    public void kill() throws InterruptedException {
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
