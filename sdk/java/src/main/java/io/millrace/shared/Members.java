package io.millrace.shared;

import io.millrace.internal.MessagePack;
import java.lang.annotation.Annotation;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** The methods, constructors and settings of a shared class, for the programs that call it and the workers that run it. */
public final class Members {
    private final Class<?> type;
    private final Shared settings;
    private final byte[] code;
    private final Map<String, Method> methods = new HashMap<>();
    private final Map<Method, Method> guards = new HashMap<>();

    private static final ClassValue<Members> ALL = new ClassValue<>() {
        @Override
        protected Members computeValue(Class<?> type) {
            return new Members(type);
        }
    };

    private Members(Class<?> type) {
        this.type = type;
        settings = type.getAnnotation(Shared.class);
        check();
        code = ClassCode.of(type);
        List<Method> all = Arrays.stream(type.getMethods()).filter(method -> isCalled(method)).toList();
        Map<String, Long> named = all.stream().filter(method -> !method.isBridge())
                .collect(Collectors.groupingBy(Method::getName, Collectors.counting()));
        for (Method method : all) {
            // The class may be one that other packages do not see.
            method.setAccessible(true);
            methods.put(full(method), method);
            When when = annotation(method, When.class);
            if (when != null) {
                guards.put(method, guard(method.isBridge() ? bridged(method, all) : method, when));
            }
            if (!method.isBridge() && named.get(method.getName()) == 1) {
                methods.put(method.getName(), method);
            }
        }
    }

    /** The members of a class; refused unless it is marked with {@link Shared} and can be shared. */
    public static Members of(Class<?> type) {
        return ALL.get(type);
    }

    private static boolean isCalled(Method method) {
        return !Modifier.isStatic(method.getModifiers()) && method.getDeclaringClass() != Object.class;
    }

    private void check() {
        String name = type.getName();
        if (settings == null) {
            throw new IllegalArgumentException(name + " is not marked with @Shared");
        } else if (settings.version() < 0 || settings.timeLimitMs() <= 0) {
            throw new IllegalArgumentException("@Shared of " + name + ": a version must be 0 or more, and a time limit more than 0");
        } else if (type.isInterface() || type.isEnum() || type.isRecord() || Modifier.isAbstract(type.getModifiers())) {
            throw new IllegalArgumentException("a shared class cannot be an interface, an enum, a record or abstract:  " + name);
        } else if (type.isLocalClass() || type.isAnonymousClass() || type.isMemberClass() && !Modifier.isStatic(type.getModifiers())) {
            throw new IllegalArgumentException("a shared class cannot refer to an enclosing object, so  " + name + " has to be static");
        }
        Class<?> base = type.getSuperclass();
        while (base.getClassLoader() != null) {
            base = base.getSuperclass();
        }
        if (base != Object.class) {
            throw new IllegalArgumentException(name + " extends " + base.getName() + " of the JDK, whose fields cannot be shared");
        }
    }

    /** The method that the compiler's bridge calls: the one whose parameters narrow those of the bridge. */
    private static Method bridged(Method bridge, List<Method> all) {
        return all.stream().filter(method -> !method.isBridge() && method.getName().equals(bridge.getName())
                && method.getParameterCount() == bridge.getParameterCount() && narrows(method, bridge)).findFirst().orElse(bridge);
    }

    private static boolean narrows(Method method, Method bridge) {
        for (int at = 0; at < bridge.getParameterCount(); at++) {
            if (!bridge.getParameterTypes()[at].isAssignableFrom(method.getParameterTypes()[at])) {
                return false;
            }
        }
        return true;
    }

    private Method guard(Method method, When when) {
        String name = method.getDeclaringClass().getName() + "." + method.getName();
        if (when.timeoutMs() < 0) {
            throw new IllegalArgumentException("@When of " + name + ": a timeout is above 0, or 0 for none");
        }
        for (Class<?>[] parameters : List.of(method.getParameterTypes(), new Class<?>[0])) {
            for (Class<?> at = type; at.getClassLoader() != null; at = at.getSuperclass()) {
                for (Method found : at.getDeclaredMethods()) {
                    if (found.getName().equals(when.value()) && Arrays.equals(found.getParameterTypes(), parameters)
                            && found.getReturnType() == boolean.class && !Modifier.isStatic(found.getModifiers())) {
                        found.setAccessible(true);
                        return found;
                    }
                }
            }
        }
        String told = ": the class has no method 'boolean " + when.value() + "' with the parameters of the guarded method or none";
        throw new IllegalArgumentException("@When of " + name + told);
    }

    private static String full(Method method) {
        String parameters = Arrays.stream(method.getParameterTypes()).map(Class::getName).collect(Collectors.joining(","));
        return method.getName() + "(" + parameters + ")";
    }

    /** Its settings. */
    public Shared settings() {
        return settings;
    }

    /** The digest of its code. */
    public byte[] code() {
        return code.clone();
    }

    /** The record by which a pool's workers find this class and verify its code. */
    public byte[] description() {
        return MessagePack.encode(List.of(type.getName(), code));
    }

    /** The remotely callable method with this name; null if there is none. */
    public Method method(String name) {
        return methods.get(name);
    }

    /** The name under which a method of its interface is called. */
    String nameOf(Method ofInterface) {
        String full = full(ofInterface);
        Method same = methods.get(ofInterface.getName());
        // A method that narrows the parameters of its interface has a bridge, which is not the one that the short name means.
        return same != null && full(same).equals(full) ? ofInterface.getName() : full;
    }

    private <A extends Annotation> A annotation(Method method, Class<A> kind) {
        A found = method.getAnnotation(kind);
        for (Class<?> at = type; found == null && at.getClassLoader() != null; at = at.getSuperclass()) {
            for (Class<?> face : at.getInterfaces()) {
                try {
                    A of = face.getMethod(method.getName(), method.getParameterTypes()).getAnnotation(kind);
                    found = found == null ? of : found;
                } catch (NoSuchMethodException error) {
                    // The method is of another interface.
                    continue;
                }
            }
        }
        return found;
    }

    /** Whether a method is marked as read-only. */
    public boolean isReadOnly(Method method) {
        return annotation(method, ReadOnly.class) != null;
    }

    /** The guard of a method; null if it has none. */
    public Method guard(Method method) {
        return guards.get(method);
    }

    /** For how many milliseconds a call of a method may wait until the method begins; 0 is without a limit. */
    int timeoutMs(Method method) {
        When when = annotation(method, When.class);
        return when == null ? 0 : when.timeoutMs();
    }

    /** How many milliseconds a method may take. */
    long timeLimitMs(Method method) {
        TimeLimit limit = annotation(method, TimeLimit.class);
        return Math.max(1, limit == null ? settings.timeLimitMs() : limit.value());
    }

    /** The constructor for these arguments, which are converted to the parameters' types in place. */
    public Constructor<?> constructor(Object[] arguments) {
        for (boolean widens : new boolean[] {false, true}) {
            for (Constructor<?> constructor : type.getDeclaredConstructors()) {
                if (takes(constructor.getParameterTypes(), arguments, widens)) {
                    constructor.setAccessible(true);
                    return constructor;
                }
            }
        }
        String given = Arrays.stream(arguments).map(argument -> argument == null ? "null" : argument.getClass().getName())
                .collect(Collectors.joining(", "));
        throw new IllegalArgumentException(type.getName() + " has no constructor for (" + given + ")");
    }

    private static boolean takes(Class<?>[] types, Object[] arguments, boolean widens) {
        boolean all = types.length == arguments.length;
        for (int at = 0; all && at < types.length; at++) {
            all = takes(types[at], arguments[at], widens);
        }
        return all;
    }

    private static boolean takes(Class<?> type, Object argument, boolean widens) {
        if (argument == null) {
            return !type.isPrimitive();
        }
        boolean whole = argument instanceof Integer || argument instanceof Short || argument instanceof Byte;
        boolean wide = type == double.class && (whole || argument instanceof Float || argument instanceof Long) || type == long.class && whole
                || type == int.class && (argument instanceof Short || argument instanceof Byte) || type == float.class && whole;
        return Exact.boxed(type).isInstance(argument) || widens && wide;
    }

    /** The method that migrates the fields of an older version; null if there is none. */
    public Method migration() {
        for (Method method : type.getDeclaredMethods()) {
            if (method.isAnnotationPresent(Migration.class)) {
                method.setAccessible(true);
                return method;
            }
        }
        return null;
    }
}
