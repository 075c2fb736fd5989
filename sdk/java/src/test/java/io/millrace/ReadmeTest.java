package io.millrace;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The tour of README.md, typed as it is there. */
class ReadmeTest {
    private static final String BEGIN = "```sh\n";
    private static final String END = "```";

    @TempDir
    Path folder;

    private String blocks() throws IOException {
        String page = Files.readString(Path.of("README.md"));
        StringBuilder found = new StringBuilder("set -e\ntrap 'kill $(jobs -p) 2>/dev/null; wait' EXIT\n");
        for (int from = page.indexOf(BEGIN); from >= 0; from = page.indexOf(BEGIN, from + 1)) {
            found.append(page, from + BEGIN.length(), page.indexOf(END, from + BEGIN.length()));
        }
        // The archive is made after the tests, of these classes.
        return found.toString().replaceAll("mvn .*\n", "").replace("$PWD/sdk/java/target/millrace-0.1.0.jar", "$PWD/sdk/java/target/classes")
                .replace("/tmp/millrace-java", folder.toString());
    }

    @Test
    void theTourPrintsWhatItSays() throws Exception {
        Path tools = Files.createDirectory(folder.resolve("tools"));
        Files.createSymbolicLink(tools.resolve("millrace"), Path.of(Host.binary()));
        ProcessBuilder builder = new ProcessBuilder("bash", "-c", blocks()).directory(Host.ROOT.toFile()).redirectErrorStream(true);
        builder.environment().merge("PATH", tools.toString(), (path, first) -> first + ":" + path);
        // Empty variables, as the tests have them, mean that there is no place.
        builder.environment().remove("MILLRACE_NAMESPACE");
        Process typed = builder.start();
        String printed = new String(typed.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertEquals(0, typed.waitFor(), printed);
        List<String> missing = new ArrayList<>(List.of("record 1: 21.5", "tail: 21.5", "MR2101", "tests: 4",
                "alice has {score=8}, version 3", "has version 3, and the change asks for version 2", "session  \"open\"",
                "6 words, {to=2, be=2, or=1, not=1}",
                "fencing token above 0: true", "six times seven: 42", "sum of squares: 328350", "reset: 0",
                "thrown in the worker: java.lang.NumberFormatException", "pool-", "balances: 250 250",
                "refused: Bob has only 250 cents, thrown in transfer", "took 0\ntook 1\ntook 2\ntook 3\ntook 4"));
        missing.removeIf(printed::contains);
        assertTrue(missing.isEmpty(), missing + " is not in:\n" + printed);
    }
}
