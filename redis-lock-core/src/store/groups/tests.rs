//! Several groups of keys, answer by answer.

use std::time::Duration;

use super::*;
use crate::domain::names::Names;
use crate::store::Blocker;

const PLACE: Duration = Duration::from_secs(5);

/// A command for three keys in three slots.
fn command(verb: Verb, ordered: bool) -> Command {
    let mut each = ["a", "b", "c"].map(|key| Names::new("", key)).into_iter();
    let first = each.next().unwrap();
    let names = Names::together(first, each.collect(), "a, b, c");
    assert_eq!(names.groups().len(), 3);
    Command { names, kind: Kind::All { ordered }, verb, timeout: Duration::from_secs(1) }
}

fn acquire(patient: bool, ordered: bool, fences: u32) -> Command {
    let verb = Verb::Acquire(Acquire {
        queue: patient.then_some(PLACE),
        fences,
        ..Acquire::of("t".into(), Some(Duration::from_secs(30)))
    });
    command(verb, ordered)
}

fn busy(queued: bool) -> Result<Answer, Fault> {
    Ok(Answer::Busy(Blocker { queued, ..Blocker::unknown() }))
}

fn held() -> Result<Answer, Fault> {
    Ok(Answer::Held { fence: None, slot: None })
}

fn gone(because: Option<&str>) -> Result<Answer, Fault> {
    Ok(Answer::Gone { by: None, because: because.map(Into::into) })
}

fn fault(class: FaultClass) -> Result<Answer, Fault> {
    Err(Fault::new(class, "no"))
}

/// What is asked, in short: `A0` acquires the first group.
fn shown(next: &NextPart) -> String {
    let NextPart::Ask(parts) = next else { return "done".into() };
    let show = |part: &Part| match &part.command.verb {
        Verb::Acquire(_) => format!("A{}", part.group),
        Verb::Keep { time, .. } if *time == PLACE => format!("K{}", part.group),
        Verb::Release { waited_for: false, keep: None, tombstone: None, .. } => {
            format!("R{}", part.group)
        }
        Verb::Raise { fence, .. } => format!("F{}={fence}", part.group),
        other => format!("{other:?}"),
    };
    parts.iter().map(show).collect::<Vec<_>>().join(" ")
}

fn answer_all(split: &mut Split, answers: &[(usize, Result<Answer, Fault>)]) -> NextPart {
    let (last, others) = answers.split_last().unwrap();
    for (group, answer) in others {
        split.answered(*group, answer.clone());
        assert!(split.next().is_none(), "an answer is missing yet");
    }
    split.answered(last.0, last.1.clone());
    split.next().unwrap()
}

/// All groups of a first attempt answer so.
fn first(command: &Command, answers: [Result<Answer, Fault>; 3]) -> (Split, NextPart) {
    first_on(&Arc::default(), command, answers)
}

fn first_on(
    cluster: &Arc<ClusterMode>,
    command: &Command,
    answers: [Result<Answer, Fault>; 3],
) -> (Split, NextPart) {
    let (mut split, next) = Split::start(command, cluster);
    assert_eq!(shown(&next), "A0 A1 A2");
    let answers: Vec<_> = answers.into_iter().enumerate().collect();
    let next = answer_all(&mut split, &answers);
    (split, next)
}

fn done(next: NextPart) -> Result<Answer, Fault> {
    match next {
        NextPart::Done(answer) => answer,
        NextPart::Ask(_) => panic!("there is more to do: {}", shown(&next)),
    }
}

#[test]
fn a_lock_whose_groups_are_all_free_is_held() {
    let (_, next) = first(&acquire(true, false, 0), [held(), held(), held()]);
    assert_eq!(done(next).unwrap(), Answer::Held { fence: None, slot: None });
}

#[test]
fn at_the_first_busy_one_all_others_are_given_back() {
    for (patient, given_back) in [(true, "R0 R2"), (false, "R0")] {
        let answers = [held(), busy(patient), busy(patient)];
        let (mut split, next) = first(&acquire(patient, false, 0), answers);
        assert_eq!(shown(&next), given_back);
        let answers: Vec<_> = if patient { vec![0, 2] } else { vec![0] };
        let answers: Vec<_> = answers.into_iter().map(|group| (group, Ok(Answer::Done))).collect();
        assert_eq!(done(answer_all(&mut split, &answers)).unwrap(), busy(patient).unwrap());
    }
}

#[test]
fn after_rounds_in_vain_what_comes_first_is_kept() {
    let (mut split, next) = first(&acquire(true, true, 0), [held(), busy(true), held()]);
    assert_eq!(shown(&next), "K0 R2");
    let next = answer_all(&mut split, &[(0, Ok(Answer::Done)), (2, Ok(Answer::Done))]);
    assert_eq!(done(next).unwrap(), busy(true).unwrap());
    // But not by a caller that does not wait, or that could not be queued.
    for (patient, given_back) in [(false, "R0 R2"), (true, "R0 R1 R2")] {
        let answers = [held(), busy(false), held()];
        assert_eq!(shown(&first(&acquire(patient, true, 0), answers).1), given_back);
    }
}

#[test]
fn a_waiter_looks_first_at_the_group_where_it_waits() {
    for (ordered, again) in [(false, "A1"), (true, "A0 A1")] {
        let command = acquire(true, ordered, 0);
        let cluster = Arc::default();
        let (mut split, _) = first_on(&cluster, &command, [held(), busy(true), held()]);
        let next = answer_all(&mut split, &[(0, Ok(Answer::Done)), (2, Ok(Answer::Done))]);
        done(next).unwrap();

        let (mut split, next) = Split::start(&command, &cluster);
        assert_eq!(shown(&next), again);
        let asked = usize::from(!ordered)..2;
        let answers: Vec<_> = asked.clone().map(|group| (group, held())).collect();
        let next = answer_all(&mut split, &answers);
        let rest: Vec<_> = (0..3).filter(|group| !asked.contains(group)).collect();
        let answers: Vec<_> = rest.iter().map(|group| (*group, held())).collect();
        assert_eq!(shown(&next), if ordered { "A2" } else { "A0 A2" });
        assert_eq!(
            done(answer_all(&mut split, &answers)).unwrap(),
            Answer::Held { fence: None, slot: None }
        );
    }
}

#[test]
fn what_fails_half_way_is_given_back() {
    for class in [FaultClass::Refused, FaultClass::Permanent, FaultClass::Misuse] {
        let answers = [held(), busy(true), fault(class)];
        let (mut split, next) = first(&acquire(true, true, 0), answers);
        assert_eq!(shown(&next), "R0 R1");
        let answers = [0, 1].map(|group| (group, gone(None)));
        assert_eq!(done(answer_all(&mut split, &answers)).unwrap_err().class, class);
    }
    let (_, next) = first(&acquire(true, false, 0), [held(), Ok(Answer::Tombstone), held()]);
    assert_eq!(shown(&next), "R0 R1 R2");
}

#[test]
fn what_could_not_be_given_back_is_in_doubt() {
    let (mut split, _) = first(&acquire(true, false, 0), [held(), busy(true), held()]);
    let answers = [(0, fault(FaultClass::Refused)), (2, Ok(Answer::Done))];
    assert!(done(answer_all(&mut split, &answers)).unwrap_err().class.is_unknown());
}

#[test]
fn what_may_have_been_executed_somewhere_is_not_known_to_be_refused() {
    let answers = || [fault(FaultClass::Refused), fault(FaultClass::Unknown), held()];
    let (mut split, next) = first(&acquire(true, false, 0), answers());
    assert_eq!(shown(&next), "R2");
    let outcome = done(answer_all(&mut split, &[(2, Ok(Answer::Done))]));
    assert!(outcome.unwrap_err().class.is_unknown());
    let moving = fault(FaultClass::Moving);
    let release = Verb::Release {
        token: "t".into(),
        waited_for: true,
        keep: None,
        share: None,
        tombstone: None,
    };
    let (mut split, next) = Split::start(&command(release, false), &Arc::default());
    assert!(matches!(next, NextPart::Ask(_)));
    let answers = [(0, fault(FaultClass::Refused)), (1, fault(FaultClass::Unknown)), (2, moving)];
    assert!(done(answer_all(&mut split, &answers)).unwrap_err().class.is_unknown());
}

#[test]
fn a_token_of_which_it_is_unknown_what_was_given_back_is_not_used_again() {
    let command = acquire(true, false, 0);
    let cluster = Arc::default();
    let (split, next) = first_on(&cluster, &command, [held(), busy(true), held()]);
    assert_eq!(shown(&next), "R0 R2");
    assert!(split.broken(Fault::new(FaultClass::Unknown, "cut")).is_err());
    let again = Split::start(&command, &cluster).1;
    assert_eq!(done(again).unwrap(), Answer::Tombstone);
    // An attempt that was cut before anything had to be given back can be used again.
    let cluster = Arc::default();
    let (split, _) = Split::start(&command, &cluster);
    assert!(split.broken(Fault::new(FaultClass::Unknown, "cut")).is_err());
    assert_eq!(shown(&Split::start(&command, &cluster).1), "A0 A1 A2");
}

#[test]
fn an_attempt_after_which_the_token_was_asked_for_again_gives_nothing_back() {
    let command = acquire(true, false, 0);
    let cluster = Arc::default();
    let (mut old, _) = Split::start(&command, &cluster);
    let (_new, next) = Split::start(&command, &cluster);
    assert_eq!(shown(&next), "A0 A1 A2");
    let next = answer_all(&mut old, &[(0, held()), (1, busy(true)), (2, held())]);
    assert!(done(next).unwrap_err().class.is_unknown());
}

#[test]
fn a_token_that_may_yet_be_given_back_is_not_asked_for_again() {
    let command = acquire(true, false, 0);
    let again = |class| {
        let answers = [held(), fault(FaultClass::Unknown), held()];
        let cluster = Arc::default();
        let (mut split, next) = first_on(&cluster, &command, answers);
        assert_eq!(shown(&next), "R0 R2");
        let next = answer_all(&mut split, &[(0, fault(FaultClass::Refused)), (2, fault(class))]);
        assert!(done(next).unwrap_err().class.is_unknown());
        Split::start(&command, &cluster).1
    };
    // Such a release may be executed after every group was acquired.
    for class in [FaultClass::Unknown, FaultClass::Late] {
        assert_eq!(done(again(class)).unwrap(), Answer::Tombstone, "{class:?}");
    }
    for class in [FaultClass::Refused, FaultClass::Moving] {
        assert_eq!(shown(&again(class)), "A0 A1 A2", "{class:?}");
    }
}

#[test]
fn m1_all_counters_go_on_from_the_largest() {
    let number = |fence| Ok(Answer::Held { fence: Some(fence), slot: None });
    let (mut split, next) = first(&acquire(true, false, 32), [number(7), number(9), number(8)]);
    assert_eq!(shown(&next), "F0=9 F2=9");
    let next = answer_all(&mut split, &[(0, Ok(Answer::Done)), (2, Ok(Answer::Done))]);
    assert_eq!(done(next).unwrap(), Answer::Held { fence: Some(9), slot: None });

    let (mut split, _) = first(&acquire(true, false, 32), [number(7), number(9), number(9)]);
    let next = answer_all(&mut split, &[(0, fault(FaultClass::Refused))]);
    assert_eq!(shown(&next), "R0 R1 R2", "without its number it is of no use");
    let (_, next) = first(&acquire(true, false, 32), [number(9), number(9), number(9)]);
    assert_eq!(done(next).unwrap(), Answer::Held { fence: Some(9), slot: None });
}

#[test]
fn the_loss_of_one_is_the_loss_of_all_and_what_was_not_released_is_again() {
    let token: Arc<str> = "t".into();
    let ttl = Some(PLACE);
    let renew = Verb::Renew { token: Arc::clone(&token), ttl };
    let check = Verb::Check { token: Arc::clone(&token) };
    let release =
        Verb::Release { token, waited_for: false, keep: None, share: None, tombstone: None };
    let refused = || fault(FaultClass::Refused);
    let done_ = || Ok(Answer::Done);
    let merged = |verb: &Verb, answers: [Result<Answer, Fault>; 3]| {
        let (mut split, _) = Split::start(&command(verb.clone(), false), &Arc::default());
        let answers: Vec<_> = answers.into_iter().enumerate().collect();
        done(answer_all(&mut split, &answers))
    };
    let renewed = |longer: Option<u64>, waited_for| Answer::Renewed {
        longer: longer.map(Duration::from_secs),
        waited_for,
        slot: None,
    };
    let several = [renewed(Some(7), false), renewed(None, true), renewed(Some(9), false)];
    assert_eq!(merged(&renew, several.map(Ok)).unwrap(), renewed(Some(9), true));
    for verb in [&renew, &check, &release] {
        let all = merged(verb, [done_(), done_(), done_()]).unwrap();
        assert!(matches!(all, Answer::Done | Answer::Renewed { longer: None, .. }));
        let lost = merged(verb, [done_(), gone(None), gone(Some("it hangs"))]).unwrap();
        assert_eq!(lost, gone(Some("it hangs")).unwrap(), "the reason is reported");
        assert!(merged(verb, [done_(), refused(), done_()]).is_err());
    }
    for verb in [&renew, &check] {
        let lost = merged(verb, [refused(), done_(), gone(None)]).unwrap();
        assert_eq!(lost, gone(None).unwrap());
    }
    assert!(merged(&release, [gone(None), done_(), refused()]).is_err());
}

#[test]
fn what_was_released_in_part_is_not_lost_when_it_is_released_again() {
    let token = "t".into();
    let release =
        Verb::Release { token, waited_for: false, keep: None, share: None, tombstone: None };
    let class = |answers: [Result<Answer, Fault>; 3]| {
        let (mut split, _) = Split::start(&command(release.clone(), false), &Arc::default());
        let answers: Vec<_> = answers.into_iter().enumerate().collect();
        done(answer_all(&mut split, &answers)).unwrap_err().class
    };
    let (done, moving) = (|| Ok(Answer::Done), || fault(FaultClass::Moving));
    assert_eq!(class([done(), moving(), done()]), FaultClass::PartlyDone);
    assert_eq!(class([done(), fault(FaultClass::Refused), moving()]), FaultClass::Unknown);
    assert_eq!(class([done(), done(), fault(FaultClass::Permanent)]), FaultClass::Permanent);
    // Nothing was executed, or a group was lost before: the next try finds out.
    assert_eq!(class([moving(), moving(), moving()]), FaultClass::Moving);
    assert_eq!(class([done(), moving(), gone(None)]), FaultClass::Moving);
}
