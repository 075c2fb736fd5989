//! Answers that are too large.

use super::*;

#[test]
fn an_answer_that_no_frame_carries_is_refused_before_it_is_made() {
    let mut world = World::new(&[1]);
    let part = value::bytes(&vec![7; 4 << 20]);
    let refused = |world: &mut World, of, method, args: &[Vec<u8>]| {
        let number = world.number(1);
        let call = world.with(1, number, of, method, args, Flags::default());
        assert_eq!(call.unwrap_err().code(), Code::ObjectTooLarge, "{method}");
    };
    let (list, dict, sorted, log) = ((Type::List, "l"), (Type::Dict, "d"), (Type::SortedDict, "s"), (Type::Log, "g"));
    for at in 0..4 {
        world.value(1, list, "append", std::slice::from_ref(&part));
        world.value(1, log, "append", std::slice::from_ref(&part));
        world.value(1, dict, "set", &[value::int(at), part.clone()]);
        world.value(1, sorted, "set", &[value::int(at), part.clone()]);
    }
    for (of, method) in [(list, "items"), (list, "snapshot"), (list, "slice"), (log, "slice"), (dict, "items")] {
        refused(&mut world, of, method, &[]);
    }
    for (of, method) in [(dict, "values"), (sorted, "items"), (sorted, "range")] {
        refused(&mut world, of, method, &[]);
    }
    assert_eq!(world.value(1, dict, "len", &[]), value::int(4));
    // 32 MB of cells.
    let (moment, args, side) = (world.moment(), value::array([].into_iter()), value::int(2000));
    let new = value::array([&*side, &*side].into_iter());
    let (number, method) = (world.number(1), Type::Matrix.method("all").unwrap());
    let (flags, new) = (Flags::default(), Some(&*new));
    #[rustfmt::skip]
    let all = Call {
        session: [1; 16], number, acked: 0, kind: Type::Matrix, key: "m", incarnation: 0, method, args: &args, new, flags, fence: None,
    };
    assert_eq!(world.space.call(&all, moment).unwrap_err().code(), Code::ObjectTooLarge);
}
