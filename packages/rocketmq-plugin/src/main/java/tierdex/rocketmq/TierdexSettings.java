package tierdex.rocketmq;

/** Settings in broker.conf: the name of a field is that of its property. */
public class TierdexSettings {
    private String tierdexUrl = "";
    private String tierdexApiKey = "";
    private boolean tierdexArchive = false;
    private int tierdexTimeoutMs = 300;
    private int tierdexMaxRequests = 8;
    private int tierdexFailures = 3;
    private int tierdexPauseMs = 5_000;

    /** Where `tierdex serve` is, as in http://127.0.0.1:8080. */
    public String getTierdexUrl() {
        return tierdexUrl;
    }

    public void setTierdexUrl(String url) {
        tierdexUrl = url;
    }

    /** A key of the service with the right to read; with an archive, to read messages. */
    public String getTierdexApiKey() {
        return tierdexApiKey;
    }

    public void setTierdexApiKey(String key) {
        tierdexApiKey = key;
    }

    /** Whether the service keeps the messages (`tierdex follow --keep`): those that the broker has no more are shown. */
    public boolean isTierdexArchive() {
        return tierdexArchive;
    }

    public void setTierdexArchive(boolean archive) {
        tierdexArchive = archive;
    }

    /** How long a query waits for Tierdex at most. */
    public int getTierdexTimeoutMs() {
        return tierdexTimeoutMs;
    }

    public void setTierdexTimeoutMs(int timeoutMs) {
        tierdexTimeoutMs = timeoutMs;
    }

    /** How many queries ask at one time; others are answered by the broker alone. */
    public int getTierdexMaxRequests() {
        return tierdexMaxRequests;
    }

    public void setTierdexMaxRequests(int requests) {
        tierdexMaxRequests = requests;
    }

    /** After how many failures in a row Tierdex is not asked for a while. */
    public int getTierdexFailures() {
        return tierdexFailures;
    }

    public void setTierdexFailures(int failures) {
        tierdexFailures = failures;
    }

    /** That while. */
    public int getTierdexPauseMs() {
        return tierdexPauseMs;
    }

    public void setTierdexPauseMs(int pauseMs) {
        tierdexPauseMs = pauseMs;
    }
}
