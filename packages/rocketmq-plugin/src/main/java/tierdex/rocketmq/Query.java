package tierdex.rocketmq;

/** What a broker is asked: at most `maxNum` messages of a key, stored from `begin` to `end` (ms). */
record Query(String topic, String key, int maxNum, long begin, long end) { }
