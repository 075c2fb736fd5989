import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.eclipse.paho.client.mqttv3.MqttClient;
import org.eclipse.paho.client.mqttv3.MqttConnectOptions;
import org.eclipse.paho.client.mqttv3.persist.MemoryPersistence;

/** Eclipse Paho for Java: publishes at each quality, and prints what comes back. Argument: port. */
public final class Client {
    private Client() {}

    public static void main(String[] args) throws Exception {
        var came = new LinkedBlockingQueue<String>();
        try (var client = new MqttClient("tcp://127.0.0.1:" + args[0], "java", new MemoryPersistence())) {
            var options = new MqttConnectOptions();
            options.setMqttVersion(MqttConnectOptions.MQTT_VERSION_3_1_1);
            options.setCleanSession(true);
            client.connect(options);
            client.subscribe("raw/+", 1, (topic, message) -> came.add(topic + " " + new String(message.getPayload(), "UTF-8")));
            for (int qos = 0; qos < 3; qos++) {
                client.publish("raw/hall", ("java " + qos).getBytes("UTF-8"), qos, false);
            }
            for (int count = 0; count < 3; count++) {
                String message = came.poll(120, TimeUnit.SECONDS);
                if (message == null) {
                    throw new AssertionError("nothing came");
                }
                System.out.println(message);
            }
            client.disconnect();
        }
    }
}
