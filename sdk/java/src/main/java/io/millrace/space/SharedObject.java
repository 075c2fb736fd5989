package io.millrace.space;

import java.io.Serializable;

/**
 * A shared object. All programs and tasks that use its key use the same object. A reference to it can be passed as an argument of a task,
 * and as a value of another object.
 */
public interface SharedObject extends Serializable {
    /** The identity of the object. */
    Reference reference();

    /** For other packages of Millrace: the same object, whose calls go through another reference to it. */
    SharedObject withReference(Reference other);
}
