import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.SimpleRecord;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.PutMessageStatus;
import org.apache.rocketmq.store.RocksDBMessageStore;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * RocketMQ's message store and Kafka's log, driven by lines on stdin: one experiment a line, one answer a line.
 *
 * <pre>
 * open KIND FOLDER QUEUES SYNC   rocketmq, rocketmq-rocksdb, kafka; SYNC: each append waits for its sync
 * single IN_FLIGHT COUNT BYTES   appends of one message, IN_FLIGHT of them waiting at any time
 * batch CALLS MESSAGES BYTES     calls of so many messages, each to the next queue
 * settle                         wait until what was appended can be read
 * tail READS                     reads of the last 10 messages of a queue, queue after queue
 * close
 * </pre>
 *
 * The answer is "ok COUNT NANOSECONDS", or "error" and why. Nothing else is written to stdout.
 */
public final class LogPeers {
    private static final int READ = 10;

    interface Log extends AutoCloseable {
        void single(int inFlight, int count, byte[] body) throws Exception;

        void batch(int calls, int messages, byte[] body) throws Exception;

        default void settle() throws Exception {}

        int tail(int reads) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        Log log = null;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.trim().split(" ");
            try {
                long count = 0;
                if (words[0].equals("open")) {
                    log = open(words[1], words[2], Integer.parseInt(words[3]), Boolean.parseBoolean(words[4]));
                }
                long began = System.nanoTime();
                if (words[0].equals("single")) {
                    count = Integer.parseInt(words[2]);
                    log.single(Integer.parseInt(words[1]), (int) count, new byte[Integer.parseInt(words[3])]);
                } else if (words[0].equals("batch")) {
                    count = (long) Integer.parseInt(words[1]) * Integer.parseInt(words[2]);
                    byte[] body = new byte[Integer.parseInt(words[3])];
                    log.batch(Integer.parseInt(words[1]), Integer.parseInt(words[2]), body);
                } else if (words[0].equals("tail")) {
                    count = log.tail(Integer.parseInt(words[1]));
                }
                long nanoseconds = System.nanoTime() - began;
                if (words[0].equals("settle")) {
                    log.settle();
                } else if (words[0].equals("close")) {
                    log.close();
                }
                System.out.println("ok " + count + " " + nanoseconds);
            } catch (Throwable error) { // also a mapping that the system refuses
                System.out.println("error " + String.valueOf(error).replace('\n', ' '));
            }
        }
        System.exit(0);
    }

    private static Log open(String kind, String folder, int queues, boolean sync) throws Exception {
        return kind.equals("kafka") ? new Kafka(folder, queues, sync) : new RocketMq(kind, folder, queues, sync);
    }

    /** The store of a RocketMQ broker, without replication: SYNC_FLUSH or ASYNC_FLUSH. */
    static final class RocketMq implements Log {
        private static final SocketAddress HOST = new InetSocketAddress("127.0.0.1", 0);
        private static final String TOPIC = "bench";
        private final DefaultMessageStore store;
        private final int queues;
        private int next;

        RocketMq(String kind, String folder, int queues, boolean sync) throws Exception {
            this.queues = queues;
            MessageStoreConfig config = new MessageStoreConfig();
            config.setStorePathRootDir(folder);
            config.setStorePathCommitLog(folder + File.separator + "commitlog");
            config.setFlushDiskType(sync ? FlushDiskType.SYNC_FLUSH : FlushDiskType.ASYNC_FLUSH);
            config.setMappedFileSizeCommitLog(256 << 20);
            config.setHaListenPort(0);
            config.setTimerWheelEnable(false);
            config.setMessageIndexEnable(false);
            boolean onRocksDb = kind.equals("rocketmq-rocksdb");
            if (onRocksDb) {
                config.setStoreType("defaultRocksDB");
            } else {
                config.setMappedFileSizeConsumeQueue(20 * 10_000); // of 6 MB: a thousand of them would be 6 GB
            }
            BrokerStatsManager stats = new BrokerStatsManager("bench", false);
            BrokerConfig broker = new BrokerConfig();
            store = onRocksDb
                ? new RocksDBMessageStore(config, stats, null, broker, new ConcurrentHashMap<>())
                : new DefaultMessageStore(config, stats, null, broker, new ConcurrentHashMap<>());
            if (!store.load()) {
                throw new IllegalStateException("the store does not load");
            }
            store.start();
        }

        private MessageExtBrokerInner message(byte[] body) {
            MessageExtBrokerInner message = new MessageExtBrokerInner();
            message.setTopic(TOPIC);
            message.setBody(body);
            message.setQueueId(next++ % queues);
            message.setBornTimestamp(System.currentTimeMillis());
            message.setBornHost(HOST);
            message.setStoreHost(HOST);
            MessageAccessor.setProperties(message, new HashMap<>());
            message.setPropertiesString("");
            return message;
        }

        @Override
        public void single(int inFlight, int count, byte[] body) throws Exception {
            Semaphore places = new Semaphore(inFlight);
            AtomicInteger failed = new AtomicInteger();
            for (int i = 0; i < count; i++) {
                places.acquire();
                store.asyncPutMessage(message(body)).whenComplete((result, error) -> {
                    if (error != null || result.getPutMessageStatus() != PutMessageStatus.PUT_OK) {
                        failed.incrementAndGet();
                    }
                    places.release();
                });
            }
            places.acquire(inFlight);
            if (failed.get() > 0) {
                throw new IllegalStateException(failed.get() + " appends failed");
            }
        }

        @Override
        public void batch(int calls, int messages, byte[] body) throws Exception {
            List<Message> rows = new ArrayList<>();
            for (int i = 0; i < messages; i++) {
                rows.add(new Message(TOPIC, body));
            }
            for (int i = 0; i < calls; i++) {
                MessageExtBatch batch = new MessageExtBatch();
                batch.setTopic(TOPIC);
                batch.setQueueId(next++ % queues);
                batch.setBody(MessageDecoder.encodeMessages(rows));
                batch.setBornTimestamp(System.currentTimeMillis());
                batch.setBornHost(HOST);
                batch.setStoreHost(HOST);
                PutMessageStatus status = store.asyncPutMessages(batch).get().getPutMessageStatus();
                if (status != PutMessageStatus.PUT_OK) {
                    throw new IllegalStateException(status.toString());
                }
            }
        }

        @Override
        public void settle() throws Exception {
            while (store.dispatchBehindBytes() > 0) {
                Thread.sleep(1);
            }
        }

        @Override
        public int tail(int reads) throws Exception {
            int found = 0;
            for (int i = 0; i < reads; i++) {
                int queue = i % queues;
                long end = store.getMaxOffsetInQueue(TOPIC, queue);
                GetMessageResult result = store.getMessage("bench", TOPIC, queue, Math.max(0, end - READ), READ, null);
                found += result.getMessageCount();
                result.release();
            }
            return found;
        }

        @Override
        public void close() {
            store.shutdown();
            store.destroy();
        }
    }

    /** The log of one Kafka partition a queue; with sync it is flushed behind each append. */
    static final class Kafka implements Log {
        private final List<UnifiedLog> logs = new ArrayList<>();
        private final KafkaScheduler scheduler = new KafkaScheduler(1, true);
        private final boolean sync;
        private final AtomicInteger next = new AtomicInteger();

        Kafka(String folder, int queues, boolean sync) throws Exception {
            this.sync = sync;
            scheduler.startup();
            Map<String, Object> settings = new HashMap<>();
            settings.put("segment.index.bytes", 1 << 16); // of 10 MB, mapped twice a queue
            LogConfig config = new LogConfig(settings);
            BrokerTopicStats stats = new BrokerTopicStats();
            LogDirFailureChannel failures = new LogDirFailureChannel(1);
            ProducerStateManagerConfig producers = new ProducerStateManagerConfig(86_400_000, false);
            for (int queue = 0; queue < queues; queue++) {
                File directory = new File(folder, "bench-" + queue);
                if (!directory.mkdirs()) {
                    throw new IllegalStateException("cannot make " + directory);
                }
                logs.add(UnifiedLog.create(directory, config, 0, 0, scheduler, stats, Time.SYSTEM, 300_000,
                    producers, 600_000, failures, true, Optional.empty()));
            }
        }

        private void append(SimpleRecord... records) throws Exception {
            UnifiedLog log = logs.get(next.getAndIncrement() % logs.size());
            log.appendAsLeader(MemoryRecords.withRecords(Compression.NONE, records), 0);
            if (sync) {
                log.flush(false);
            }
        }

        @Override
        public void single(int inFlight, int count, byte[] body) throws Exception {
            AtomicInteger left = new AtomicInteger(count);
            List<Throwable> errors = new ArrayList<>();
            List<Thread> threads = new ArrayList<>();
            for (int i = 0; i < inFlight; i++) {
                Thread thread = new Thread(() -> {
                    try {
                        while (left.getAndDecrement() > 0) {
                            append(new SimpleRecord(System.currentTimeMillis(), body));
                        }
                    } catch (Throwable error) {
                        synchronized (errors) {
                            errors.add(error);
                        }
                    }
                });
                threads.add(thread);
                thread.start();
            }
            for (Thread thread : threads) {
                thread.join();
            }
            if (!errors.isEmpty()) {
                throw new IllegalStateException(errors.get(0));
            }
        }

        @Override
        public void batch(int calls, int messages, byte[] body) throws Exception {
            SimpleRecord[] records = new SimpleRecord[messages];
            for (int i = 0; i < calls; i++) {
                long now = System.currentTimeMillis();
                for (int row = 0; row < messages; row++) {
                    records[row] = new SimpleRecord(now, body);
                }
                append(records);
            }
        }

        @Override
        public int tail(int reads) throws Exception {
            int found = 0;
            for (int i = 0; i < reads; i++) {
                UnifiedLog log = logs.get(i % logs.size());
                long from = Math.max(0, log.logEndOffset() - READ);
                // what a broker does ends here: it sends the bytes on; a consumer takes the records
                for (var record : log.read(from, 1 << 20, FetchIsolation.LOG_END, true).records.records()) {
                    found += record.offset() >= from ? 1 : 0;
                }
            }
            return found;
        }

        @Override
        public void close() throws Exception {
            for (UnifiedLog log : logs) {
                log.close();
            }
            scheduler.shutdown();
        }
    }
}
