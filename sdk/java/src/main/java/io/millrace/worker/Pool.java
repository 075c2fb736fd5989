package io.millrace.worker;

import io.millrace.MillraceException;
import io.millrace.internal.Client;
import io.millrace.internal.Frame;
import io.millrace.internal.Json;
import io.millrace.internal.Messages;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * A pool of workers.
 *
 * @param named its name; empty for one that follows from the settings and the code
 * @param workers how many tasks run at once
 * @param memoryBytes how much memory each worker may use; its heap gets half of it
 * @param timeout how long a task may take
 * @param retries how often a task whose worker was lost is tried again
 * @param network whether tasks may use the host's network
 * @param environment variables of the workers
 * @param java the program that runs workers
 * @param options further options of it
 * @param classPath elements of the class path; null for those of this program
 */
public record Pool(String named, int workers, long memoryBytes, Duration timeout, int retries, boolean network, Map<String, String> environment,
        String java, List<String> options, List<Path> classPath) {
    private static final int NAME_DIGITS = 12;
    private static final int PART_BYTES = 1 << 20;
    /** How long the host may take to store and check the code. */
    private static final long DEPLOY_MS = 120_000;
    private static final long BUSY_MS = 50;
    private static final long MIB = 1 << 20;

    /** Reads the code, so that hosts can get the pool. */
    public Prepared prepare() {
        ClassPath code = new ClassPath(classPath == null ? ClassPath.ofProgram() : classPath);
        String settings = settings(code);
        String name = named.isEmpty() ? hash(settings + code.code()).substring(0, NAME_DIGITS) : named;
        String function = "pool-" + name;
        String folder = "/java/" + name;
        Map<String, Object> bundle = new LinkedHashMap<>();
        bundle.put("code", code.code());
        bundle.put("source", folder + "/code");
        bundle.put("items", code.items());
        Map<String, Object> order = new LinkedHashMap<>();
        order.put("do", "up");
        order.put("file", folder + "/millrace.toml");
        order.put("origin", folder + "/millrace.toml");
        order.put("text", "[functions." + function + "]\n" + settings);
        order.put("functions", Map.of(function, bundle));
        return new Prepared(name, Json.text(order), code);
    }

    /** A pool with its code, as it was when it was prepared. */
    public static final class Prepared {
        private final String name;
        private final String order;
        private final ClassPath code;

        private Prepared(String name, String order, ClassPath code) {
            this.name = name;
            this.order = order;
            this.code = code;
        }

        /** The name of the pool. */
        public String name() {
            return name;
        }

        /** Makes the pool at a host, unless it is there. The class path is sent once per version. */
        public void make(Client client) {
            // Files have to arrive over the connection that announced them, so a lost connection means to begin again.
            client.persist(() -> {
                while (true) {
                    try {
                        deploy(client, order, code);
                        return null;
                    } catch (MillraceException error) {
                        if (error.retryAfter().isEmpty() || Client.isLost(error)) {
                            throw error;
                        }
                        Client.pause(Math.max(BUSY_MS, error.retryAfter().get().toMillis()));
                    }
                }
            });
        }
    }

    private static void deploy(Client client, String order, ClassPath code) {
        Frame answer = client.ask(Messages.MANAGE, Map.of("json", order), null, DEPLOY_MS);
        if (!(Json.object(answer.text("json")).get("missing") instanceof List<?> missing)) {
            return;
        }
        for (Object sha256 : missing) {
            upload(client, (String) sha256, code.file((String) sha256));
        }
        answer = client.ask(Messages.MANAGE, Map.of("json", order), null, DEPLOY_MS);
        if (Json.object(answer.text("json")).containsKey("missing")) {
            throw new MillraceException("MR6173", "the host lacks files that were sent");
        }
    }

    private static void upload(Client client, String sha256, byte[] bytes) {
        for (int from = 0; from < bytes.length; from += PART_BYTES) {
            Map<String, Object> part = new LinkedHashMap<>();
            part.put("sha256", HexFormat.of().parseHex(sha256));
            part.put("offset", from);
            part.put("data", Arrays.copyOfRange(bytes, from, Math.min(bytes.length, from + PART_BYTES)));
            client.ask(Messages.UPLOAD, part, null, DEPLOY_MS);
        }
    }

    private String settings(ClassPath code) {
        List<String> command = new ArrayList<>();
        command.add(java);
        long heapMib = Math.max(16, memoryBytes / MIB / 2);
        // The limit of memory counts what a JVM commits beside its heap, so these are bounded, too.
        command.addAll(List.of("-Xms16m", "-Xmx" + heapMib + "m", "-Xss1m", "-XX:+UseSerialGC", "-XX:ReservedCodeCacheSize=64m",
                "-XX:-UsePerfData", "--add-opens", "java.base/java.io=ALL-UNNAMED"));
        command.addAll(options);
        command.addAll(List.of("-cp", code.option(), Worker.class.getName()));
        Map<String, Object> keys = new LinkedHashMap<>();
        keys.put("runtime", "process");
        keys.put("pool", true);
        keys.put("code", "code");
        keys.put("command", command);
        keys.put("concurrency", workers);
        keys.put("ordered", false);
        keys.put("timeout", timeout.toMillis() + "ms");
        keys.put("memory", memoryBytes);
        keys.put("retries", retries);
        keys.put("network", network);
        StringBuilder text = new StringBuilder();
        keys.forEach((key, value) -> text.append(key).append(" = ").append(Json.text(value)).append('\n'));
        if (!environment.isEmpty()) {
            text.append("env = {");
            String before = " ";
            for (Map.Entry<String, String> variable : environment.entrySet()) {
                text.append(before).append(Json.text(variable.getKey())).append(" = ").append(Json.text(variable.getValue()));
                before = ", ";
            }
            text.append(" }\n");
        }
        return text.toString();
    }

    private static String hash(String text) {
        try {
            byte[] digest = MessageDigest.getInstance("SHA-256").digest(text.getBytes(StandardCharsets.UTF_8));
            return HexFormat.of().formatHex(digest);
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }
}
