package io.millrace.space;

import java.io.Serializable;

/**
 * A shared object. All programs and tasks that name its key use the same object; a reference to it travels in arguments of tasks and in
 * values of other objects.
 */
public interface SharedObject extends Serializable {
    /** Which object it is. */
    Reference reference();

    /** For other packages of Millrace: the same object, whose calls go through another reference to it. */
    SharedObject withReference(Reference other);
}
