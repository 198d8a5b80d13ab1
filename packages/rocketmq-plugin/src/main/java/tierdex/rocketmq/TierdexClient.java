package tierdex.rocketmq;

import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.common.constant.LoggerName;
import org.apache.rocketmq.logging.org.slf4j.Logger;
import org.apache.rocketmq.logging.org.slf4j.LoggerFactory;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/**
 * Asks Tierdex's service for a key, which may be one of a message's KEYS or its unique key: two requests at once.
 *
 * A query has a deadline. After some failures in a row the service is not asked for a while (a circuit breaker), so that a
 * service that is down or slow costs queries no time; and only so many queries ask at one time.
 */
final class TierdexClient {
    private static final Logger LOG = LoggerFactory.getLogger(LoggerName.STORE_LOGGER_NAME);

    private final TierdexSettings settings;
    private final URI service;
    private final HttpClient http;
    private final Semaphore free;
    private final AtomicInteger failures = new AtomicInteger();
    private final AtomicLong closedUntil = new AtomicLong(System.nanoTime());

    /** Throws IllegalArgumentException for a URL that cannot be. */
    TierdexClient(TierdexSettings settings) {
        this.settings = settings;
        service = URI.create(settings.getTierdexUrl().replaceAll("/+$", ""));
        if (service.getHost() == null) {
            throw new IllegalArgumentException("tierdexUrl is http://HOST:PORT");
        }
        free = new Semaphore(settings.getTierdexMaxRequests());
        http = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1)
            .connectTimeout(Duration.ofMillis(settings.getTierdexTimeoutMs())).build();
    }

    /** Where a message lies in its topic's queues. */
    record Place(int queue, long offset) { }

    /** A message of Tierdex's log. */
    record Kept(int queue, long offset, long timestamp, long born, byte[] body, Map<String, String> properties) { }

    record Answer(List<Place> places, List<Kept> kept) { }

    /** Begin to ask; null while the service is not asked. */
    Asked ask(Query asked) {
        if (System.nanoTime() - closedUntil.get() < 0 || !free.tryAcquire()) {
            return null;
        }
        try {
            String path = settings.isTierdexArchive() ? "/v1/messages" : "/v1/entries";
            String range =
                "&max_count=" + Math.max(1, asked.maxNum()) + "&begin=" + asked.begin() + "&end=" + asked.end();
            List<CompletableFuture<HttpResponse<byte[]>>> sent = new ArrayList<>();
            for (String by : List.of("key", "message_id")) {
                String query = path + "?topic=" + encoded(asked.topic()) + "&" + by + "=" + encoded(asked.key()) + range;
                HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(service + query))
                    .timeout(Duration.ofMillis(settings.getTierdexTimeoutMs()));
                if (!settings.getTierdexApiKey().isEmpty()) {
                    request.header("Authorization", "Bearer " + settings.getTierdexApiKey());
                }
                sent.add(http.sendAsync(request.build(), HttpResponse.BodyHandlers.ofByteArray()));
            }
            return new Asked(sent);
        } catch (Throwable error) {
            free.release();
            throw error;
        }
    }

    /** Two requests that are under way. `await` must be called once. */
    final class Asked {
        private final List<CompletableFuture<HttpResponse<byte[]>>> sent;
        private final long giveUp = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(settings.getTierdexTimeoutMs());

        private Asked(List<CompletableFuture<HttpResponse<byte[]>>> sent) {
            this.sent = sent;
        }

        /** The answer; null when there is none in time. Throws nothing. */
        Answer await() {
            try {
                Answer answer = new Answer(new ArrayList<>(), new ArrayList<>());
                for (CompletableFuture<HttpResponse<byte[]>> each : sent) {
                    read(each.get(Math.max(0, giveUp - System.nanoTime()), TimeUnit.NANOSECONDS), answer);
                }
                failures.set(0);
                return answer;
            } catch (Exception error) {
                fail(error);
                return null;
            } finally {
                sent.forEach(each -> each.cancel(true));
                free.release();
            }
        }
    }

    private void fail(Exception error) {
        if (error instanceof InterruptedException) {
            Thread.currentThread().interrupt();
        }
        Throwable cause = error.getCause() == null ? error : error.getCause();
        LOG.warn("tierdex: no answer, the broker's own index alone is asked: {}", cause.toString());
        if (failures.incrementAndGet() >= settings.getTierdexFailures()) {
            closedUntil.set(System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(settings.getTierdexPauseMs()));
        }
    }

    private static void read(HttpResponse<byte[]> response, Answer into) {
        String text = new String(response.body(), StandardCharsets.UTF_8);
        if (response.statusCode() != 200) {
            throw new IllegalStateException(
                response.statusCode() + " " + text.substring(0, Math.min(text.length(), 300)));
        }
        Body body = RemotingSerializable.fromJson(text, Body.class);
        if (!body.complete) {
            LOG.warn("tierdex: the answer is not complete: some of the index could not be read");
        }
        body.entries.forEach(each -> into.places.add(new Place(each.queue_id, each.offset)));
        body.messages.stream().filter(each -> !each.is_forgotten).forEach(each -> into.kept.add(each.kept()));
    }

    private static String encoded(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8);
    }

    // -- the service's JSON: names as in openapi.yaml ---------------------------------------------------

    public static class Body {
        public boolean complete;
        public List<Entry> entries = List.of();
        public List<Message> messages = List.of();
    }

    public static class Entry {
        public int queue_id;
        public long offset;
    }

    public static class Header {
        public String name;
        public String value;
    }

    public static class Message {
        public int queue_id;
        public long offset;
        public long timestamp;
        public String body;
        public String encoding;
        public String message_id;
        public boolean is_forgotten;
        public List<Header> headers = List.of();

        /** `tierdex follow --keep` keeps KEYS as the header `key`, and properties by their names. */
        Kept kept() {
            Map<String, String> properties = new LinkedHashMap<>();
            for (Header each : headers) {
                byte[] value = bytes(each.value);
                String name = each.name.equals("key") ? "KEYS" : each.name;
                properties.put(name, new String(value, StandardCharsets.UTF_8));
            }
            String born = properties.remove("BORN_TIME");
            return new Kept(queue_id, offset, timestamp, born == null ? timestamp : Long.parseLong(born),
                bytes(body), properties);
        }

        private byte[] bytes(String text) {
            return "base64".equals(encoding) ? Base64.getDecoder().decode(text) : text.getBytes(StandardCharsets.UTF_8);
        }
    }
}
