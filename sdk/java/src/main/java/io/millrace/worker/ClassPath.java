package io.millrace.worker;

import io.millrace.MillraceException;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URISyntaxException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.LocalDateTime;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.jar.JarEntry;
import java.util.jar.JarOutputStream;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** A class path as the code of a pool: archives in one directory. Directories of classes are packed, the same each time. */
final class ClassPath {
    private static final String FOLDER = "lib";
    private static final byte DIRECTORY = 2;
    private static final byte FILE = 0;
    /** The earliest time that an archive can have. */
    private static final LocalDateTime NO_TIME = LocalDateTime.of(1980, 1, 1, 0, 0);

    /** A file of the code. */
    record Archive(String path, byte[] bytes, String sha256) {}

    private final List<Archive> archives = new ArrayList<>();

    /** The class path with these elements, and this package if it is not among them. */
    ClassPath(List<Path> elements) {
        List<Path> all = new ArrayList<>(elements);
        Path own = own();
        if (!all.contains(own)) {
            all.add(own);
        }
        for (Path element : all) {
            byte[] bytes;
            String name;
            try {
                if (Files.isDirectory(element)) {
                    bytes = packed(element);
                    name = "classes.jar";
                } else if (Files.exists(element)) {
                    bytes = Files.readAllBytes(element);
                    name = element.getFileName().toString();
                } else {
                    continue;
                }
            } catch (IOException error) {
                throw new UncheckedIOException("'" + element + "' of the class path cannot be read", error);
            }
            String path = String.format("%s/%03d-%s", FOLDER, archives.size(), name);
            archives.add(new Archive(path, bytes, HexFormat.of().formatHex(digest().digest(bytes))));
        }
    }

    /** The elements of this program's class path. */
    static List<Path> ofProgram() {
        String[] elements = System.getProperty("java.class.path", "").split(System.getProperty("path.separator"));
        return Stream.of(elements).filter(element -> !element.isEmpty()).map(element -> Path.of(element).toAbsolutePath()).toList();
    }

    private static Path own() {
        try {
            return Path.of(ClassPath.class.getProtectionDomain().getCodeSource().getLocation().toURI()).toAbsolutePath();
        } catch (URISyntaxException error) {
            throw new IllegalStateException(error);
        }
    }

    private static byte[] packed(Path folder) throws IOException {
        List<Path> files;
        try (Stream<Path> walked = Files.walk(folder)) {
            files = walked.filter(Files::isRegularFile).sorted().toList();
        }
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        try (JarOutputStream archive = new JarOutputStream(out)) {
            for (Path file : files) {
                JarEntry entry = new JarEntry(folder.relativize(file).toString());
                entry.setTimeLocal(NO_TIME);
                archive.putNextEntry(entry);
                archive.write(Files.readAllBytes(file));
                archive.closeEntry();
            }
        }
        return out.toByteArray();
    }

    private static MessageDigest digest() {
        try {
            return MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }

    /** What `-cp` gets in the directory of the code. */
    String option() {
        return archives.stream().map(Archive::path).collect(Collectors.joining(":"));
    }

    /** The hash of all of it, as the wire protocol defines it. Archives are numbered, so they are in the order of their paths. */
    String code() {
        MessageDigest all = digest();
        item(all, FOLDER, DIRECTORY);
        for (Archive archive : archives) {
            item(all, archive.path, FILE);
            all.update(little(archive.bytes.length));
            all.update(archive.bytes);
        }
        return HexFormat.of().formatHex(all.digest());
    }

    private static void item(MessageDigest all, String path, byte kind) {
        byte[] text = path.getBytes(StandardCharsets.UTF_8);
        all.update(little(text.length));
        all.update(text);
        all.update(kind);
    }

    private static byte[] little(long number) {
        return ByteBuffer.allocate(Long.BYTES).order(ByteOrder.LITTLE_ENDIAN).putLong(number).array();
    }

    /** Its files and directories, as MANAGE has them. */
    List<Map<String, Object>> items() {
        List<Map<String, Object>> items = new ArrayList<>();
        items.add(new LinkedHashMap<>(Map.of("path", FOLDER, "directory", true)));
        for (Archive archive : archives) {
            Map<String, Object> item = new LinkedHashMap<>();
            item.put("path", archive.path);
            item.put("bytes", archive.bytes.length);
            item.put("sha256", archive.sha256);
            items.add(item);
        }
        return items;
    }

    /** The file with this hash. */
    byte[] file(String sha256) {
        return archives.stream().filter(archive -> archive.sha256.equals(sha256)).findFirst().map(Archive::bytes)
                .orElseThrow(() -> new MillraceException("MR6174", "the host requests a file that is not part of the pool:  " + sha256));
    }
}
