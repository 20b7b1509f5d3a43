import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.RetryOneTime;

/**
 * Curator's locks and latches, taken and released as the lines of the input say. BySequence is the class that
 * docs/backends/zookeeper.md shows.
 *
 *   NUMBER RECIPE PATH MILLISECONDS  answered by "NUMBER granted", "NUMBER refused", "NUMBER failed"
 *   NUMBER release                   answered by "NUMBER released"
 */
public class Peer {
    public static void main(String[] arguments) throws Exception {
        CuratorFramework client =
                CuratorFrameworkFactory.newClient(arguments[0], 60_000, 30_000, new RetryOneTime(100));
        client.start();
        Map<String, CountDownLatch> releases = new HashMap<>();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            if (words[1].equals("release")) {
                releases.remove(words[0]).countDown();
                continue;
            }
            CountDownLatch release = new CountDownLatch(1);
            releases.put(words[0], release);
            // Curator's locks belong to threads.
            Thread thread = new Thread(() -> {
                try {
                    Recipe lock = recipe(client, words[1], words[2]);
                    if (lock.acquire(Long.parseLong(words[3]))) {
                        say(words[0] + " granted");
                        release.await();
                        lock.release();
                        say(words[0] + " released");
                    } else {
                        say(words[0] + " refused");
                    }
                } catch (Exception error) {
                    error.printStackTrace();
                    say(words[0] + " failed");
                }
            });
            thread.setDaemon(true);
            thread.start();
        }
        client.close();
    }

    private interface Recipe {
        boolean acquire(long milliseconds) throws Exception;

        void release() throws Exception;
    }

    private static Recipe recipe(CuratorFramework client, String recipe, String path) throws Exception {
        if (recipe.equals("LeaderLatch")) {
            LeaderLatch latch = new LeaderLatch(client, path, "curator");
            latch.start();
            return new Recipe() {
                public boolean acquire(long milliseconds) throws Exception {
                    boolean leads = latch.await(milliseconds, TimeUnit.MILLISECONDS);
                    if (!leads) {
                        latch.close();
                    }
                    return leads;
                }

                public void release() throws Exception {
                    latch.close();
                }
            };
        }
        InterProcessMutex lock = lock(client, recipe, path);
        return new Recipe() {
            public boolean acquire(long milliseconds) throws Exception {
                return lock.acquire(milliseconds, TimeUnit.MILLISECONDS);
            }

            public void release() throws Exception {
                lock.release();
            }
        };
    }

    private static InterProcessMutex lock(CuratorFramework client, String recipe, String path) {
        switch (recipe) {
            case "Mutex":
                return new InterProcessMutex(client, path);
            case "BySequence":
                return new InterProcessMutex(client, path, new BySequence());
            case "ReadLock":
                return new InterProcessReadWriteLock(client, path).readLock();
            case "WriteLock":
                return new InterProcessReadWriteLock(client, path).writeLock();
            default:
                throw new IllegalArgumentException(recipe);
        }
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
