package io.millrace.internal;

import java.math.BigInteger;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;

/** JSON: maps, lists, texts, {@link Long} or {@link BigInteger} or {@link Double}, booleans and null. */
public final class Json {
    private static final int DEPTH_MAX = 64;
    private static final Pattern NUMBER = Pattern.compile("-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?");

    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    /** Parses a value. */
    public static Object parse(String text) {
        Json json = new Json(text);
        Object value = json.value(DEPTH_MAX);
        json.space();
        if (json.at != text.length()) {
            throw json.odd();
        }
        return value;
    }

    /** Parses an object. */
    @SuppressWarnings("unchecked")
    public static Map<String, Object> object(String text) {
        if (!(parse(text) instanceof Map<?, ?> map)) {
            throw new IllegalArgumentException("this is not a JSON object");
        }
        return (Map<String, Object>) map;
    }

    /** The text of a value. */
    public static String text(Object value) {
        StringBuilder out = new StringBuilder();
        write(value, out);
        return out.toString();
    }

    /** The text of a value of JSON: maps with texts as keys, lists, texts, finite numbers, booleans and null. Refuses anything else. */
    public static String checkedText(Object value) {
        check(value, DEPTH_MAX);
        return text(value);
    }

    private static void check(Object value, int depth) {
        if (depth == 0) {
            throw new IllegalArgumentException("a value of JSON that nests deeper than " + DEPTH_MAX + " levels");
        } else if (value instanceof Map<?, ?> map) {
            map.forEach((key, element) -> {
                if (!(key instanceof String)) {
                    throw new IllegalArgumentException("a key of an object of JSON is a text, not " + key);
                }
                check(element, depth - 1);
            });
        } else if (value instanceof List<?> list) {
            list.forEach(element -> check(element, depth - 1));
        } else if (value != null && !(value instanceof String) && !(value instanceof Boolean) && !isNumber(value)) {
            throw new IllegalArgumentException(value + " of " + value.getClass().getName() + " is no value of JSON");
        }
    }

    /** Whether it is a number whose text is one in JSON; that of NaN is not. */
    private static boolean isNumber(Object value) {
        return value instanceof Number && NUMBER.matcher(value.toString()).matches();
    }

    private static void write(Object value, StringBuilder out) {
        if (value instanceof Map<?, ?> map) {
            String before = "{";
            for (Map.Entry<?, ?> entry : map.entrySet()) {
                out.append(before);
                quote(entry.getKey().toString(), out);
                out.append(':');
                write(entry.getValue(), out);
                before = ",";
            }
            out.append(map.isEmpty() ? "{}" : "}");
        } else if (value instanceof List<?> list) {
            String before = "[";
            for (Object element : list) {
                out.append(before);
                write(element, out);
                before = ",";
            }
            out.append(list.isEmpty() ? "[]" : "]");
        } else if (value == null || value instanceof Number || value instanceof Boolean) {
            out.append(value);
        } else {
            quote(value.toString(), out);
        }
    }

    /** Writes a text in quotes; TOML's basic strings have the same form. */
    static void quote(String text, StringBuilder out) {
        out.append('"');
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < ' ' || c == 0x7f) {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }

    private IllegalArgumentException odd() {
        return new IllegalArgumentException("this is no JSON at character " + at);
    }

    private void space() {
        while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
    }

    private boolean take(char wanted) {
        space();
        if (at < text.length() && text.charAt(at) == wanted) {
            at++;
            return true;
        }
        return false;
    }

    private void need(char wanted) {
        if (!take(wanted)) {
            throw odd();
        }
    }

    private Object value(int depth) {
        if (depth == 0) {
            throw odd();
        }
        if (take('{')) {
            Map<String, Object> found = new LinkedHashMap<>();
            for (boolean more = !take('}'); more; ) {
                need('"');
                String key = string();
                need(':');
                found.put(key, value(depth - 1));
                more = take(',');
                if (!more) {
                    need('}');
                }
            }
            return found;
        }
        if (take('[')) {
            List<Object> found = new ArrayList<>();
            for (boolean more = !take(']'); more; ) {
                found.add(value(depth - 1));
                more = take(',');
                if (!more) {
                    need(']');
                }
            }
            return found;
        }
        return take('"') ? string() : word();
    }

    private Object word() {
        int from = at;
        while (at < text.length() && (Character.isLetterOrDigit(text.charAt(at)) || "+-.".indexOf(text.charAt(at)) >= 0)) {
            at++;
        }
        String word = text.substring(from, at);
        switch (word) {
            case "null":
                return null;
            case "true":
                return true;
            case "false":
                return false;
            default:
                try {
                    if (word.matches("-?[0-9]+")) {
                        BigInteger number = new BigInteger(word);
                        return number.bitLength() < 64 ? (Object) number.longValue() : number;
                    }
                    return Double.valueOf(word);
                } catch (NumberFormatException error) {
                    throw odd();
                }
        }
    }

    private String string() {
        StringBuilder found = new StringBuilder();
        while (at < text.length()) {
            char c = text.charAt(at++);
            if (c == '"') {
                return found.toString();
            }
            if (c != '\\') {
                found.append(c);
                continue;
            }
            if (at == text.length()) {
                break;
            }
            char escaped = text.charAt(at++);
            int plain = "\"\\/bfnrt".indexOf(escaped);
            if (plain >= 0) {
                found.append("\"\\/\b\f\n\r\t".charAt(plain));
            } else if (escaped == 'u' && at + 4 <= text.length()) {
                found.append((char) Integer.parseInt(text.substring(at, at + 4), 16));
                at += 4;
            } else {
                break;
            }
        }
        throw odd();
    }
}
