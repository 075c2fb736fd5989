package io.millrace.examples;

import io.millrace.concurrent.ConcurrentHashMap;
import io.millrace.executor.Executors;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Word count: each task counts the words of some lines, and adds them to the counts of all. */
public final class WordCount implements Callable<Integer>, Serializable {
    private static final Pattern WORD = Pattern.compile("[a-z']+");

    private final String text;
    private final ConcurrentMap<String, Long> counts;

    WordCount(String text, ConcurrentMap<String, Long> counts) {
        this.text = text;
        this.counts = counts;
    }

    @Override
    public Integer call() {
        Map<String, Long> here = new HashMap<>();
        int words = 0;
        Matcher matcher = WORD.matcher(text.toLowerCase(Locale.ROOT));
        while (matcher.find()) {
            here.merge(matcher.group(), 1L, Long::sum);
            words++;
        }
        here.forEach((word, count) -> counts.merge(word, count, Long::sum));
        return words;
    }

    /** How often each word is in the lines. */
    public static Map<String, Long> count(List<String> lines, int workers) throws Exception {
        ExecutorService executor = Executors.newFixedThreadPool(workers);
        ConcurrentMap<String, Long> counts = new ConcurrentHashMap<>();
        List<WordCount> parts = new ArrayList<>();
        for (int worker = 0; worker < workers; worker++) {
            int from = lines.size() * worker / workers;
            int to = lines.size() * (worker + 1) / workers;
            parts.add(new WordCount(String.join("\n", lines.subList(from, to)), counts));
        }
        long words = 0;
        for (Future<Integer> part : executor.invokeAll(parts)) {
            words += part.get();
        }
        Map<String, Long> found = new HashMap<>(counts);
        executor.shutdown();
        if (words != found.values().stream().mapToLong(Long::longValue).sum()) {
            throw new IllegalStateException("words were lost");
        }
        return found;
    }
}
