//! The subcommand `schedule`: draws, exports and checks pipeline schedules.

use std::fmt::Write;

use clap::{Arg, ArgMatches, Command, value_parser};
use meshwright::counted;
use meshwright::schedule::{
    Costs, Schedule, ScheduleKind, Simulation, Verified, csv, draw, simulate, verify,
};

use super::failure::Failure;
use super::plot::output::{check_replaced, is_drawing, write_whole};

pub fn command() -> Command {
    let number = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("N").value_parser(value_parser!(usize)).help(help)
    };
    let file = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("FILE").help(help)
    };
    let names = ScheduleKind::ALL.map(ScheduleKind::name).join(", ");
    Command::new("schedule")
        .about("Draw a pipeline schedule with its bubble and memory peaks, export it, or check a CSV file")
        .arg(Arg::new("schedule").long("schedule").value_name("NAME").help(format!(
            "One of {names} [default: 1f1b]; with --check, the schedule that the file must equal"
        )))
        .arg(number("pp", "Number of ranks [default: 4]").conflicts_with("check"))
        .arg(
            number("virtual-stages", "Stages per rank [default: the number of the schedule]")
                .conflicts_with("check"),
        )
        .arg(
            number("micro-batches", "Micro-batches per step [default: twice the number of ranks]")
                .conflicts_with("check"),
        )
        .arg(
            Arg::new("costs")
                .long("costs")
                .value_name("F,I,W,M")
                .default_value("1,1,1,0")
                .help("Times of a stage's forward pass, its backward pass for the input and for weights, and a \
                       message"),
        )
        .arg(file("check", "Check a CSV file in PyTorch's notation, instead of generating a schedule"))
        .arg(file("svg", "Write the drawing as SVG"))
        .arg(file("csv", "Write the computations as CSV"))
        .arg(file("csv-full", "Write computations, messages and gradient reductions as CSV"))
}

/// Runs the subcommand. Returns the text to print, and false if the schedule has faults.
pub fn run_command(matches: &ArgMatches) -> Result<(String, bool), Failure> {
    let costs = costs(matches.get_one::<String>("costs").expect("it has a default"))?;
    let schedule = schedule(matches)?;
    let verified = match verify(&schedule) {
        Ok(verified) => verified,
        Err(findings) => {
            let lines = findings.iter().map(|finding| format!("REFUSED {finding}\n"));
            return Ok((lines.collect(), false));
        }
    };
    let simulation = simulate(verified.lowered(), costs).map_err(|stuck| stuck.to_string())?;
    let title = title(&schedule, &simulation);
    let drawing = || draw::draw_svg(&schedule, &simulation, &title);
    let computations = || csv::write(&schedule);
    let all = || csv::write(verified.lowered());
    let is_table = |text: &str| csv::read(text).is_ok();
    let files = ["svg", "csv", "csv-full"].map(|flag| (flag, matches.get_one::<String>(flag)));
    for (index, (flag, path)) in files.iter().enumerate() {
        let Some(path) = path else { continue };
        let is_own = |text: &str| if *flag == "svg" { is_drawing(text) } else { is_table(text) };
        check_replaced(&format!("--{flag}"), path.as_ref(), is_own)?;
        if let Some((other, _)) = files[..index].iter().find(|(_, other)| *other == Some(path)) {
            let message =
                format!("--{flag}: {path} is also the file of --{other}; name another file");
            return Err(message.into());
        }
    }
    let texts: [&dyn Fn() -> String; 3] = [&drawing, &computations, &all];
    for ((flag, path), text) in files.into_iter().zip(texts) {
        if let Some(path) = path {
            write_whole(path.as_ref(), &text())
                .map_err(|error| Failure::new(format!("--{flag} {path}: {error}"), &error))?;
        }
    }
    let table = table(&verified, &simulation);
    Ok((format!("{title}\n\n{table}\n{}", draw::draw_text(&schedule, &simulation)), true))
}

/// Reads or generates the schedule.
fn schedule(matches: &ArgMatches) -> Result<Schedule, Failure> {
    let kind = matches.get_one::<String>("schedule").map(|name| name.parse::<ScheduleKind>());
    let kind = kind.transpose().map_err(|error| format!("--schedule: {error}"))?;
    if let Some(path) = matches.get_one::<String>("check") {
        let text = meshwright::read_text(path.as_ref())
            .map_err(|error| Failure::new(format!("--check {path}: {error}"), &error))?;
        let read = csv::read(&text).map_err(|error| format!("--check {path}: {error}"))?;
        return Ok(Schedule { kind, ..read });
    }
    let kind = kind.unwrap_or(ScheduleKind::OneFOneB);
    let number = |name: &str| matches.get_one::<usize>(name).copied();
    let ranks = number("pp").unwrap_or(4);
    let chunks = number("virtual-stages").unwrap_or(kind.default_chunks());
    let micro_batches = number("micro-batches").unwrap_or(2 * ranks);
    // A drawing of more would not fit anywhere.
    const MOST: usize = 1 << 16;
    let computations = ranks.saturating_mul(chunks).saturating_mul(micro_batches);
    if computations > MOST {
        return Err(format!(
            "--pp {ranks}, --virtual-stages {chunks} and --micro-batches {micro_batches} make {computations} forward \
             passes: at most {MOST} are drawn"
        )
        .into());
    }
    kind.generate(ranks, chunks, micro_batches).map_err(|error| error.to_string().into())
}

fn costs(text: &str) -> Result<Costs, String> {
    // The sums of larger times would not be exact, or not finite.
    const LARGEST: f64 = 1e15;
    let parsed: Result<Vec<f64>, _> = text.split(',').map(|cost| cost.trim().parse()).collect();
    let is_cost = |cost: &f64| (0.0..=LARGEST).contains(cost);
    match parsed.as_deref() {
        Ok(&[forward, input, weight, message])
            if [forward, input, weight, message].iter().all(is_cost)
                && forward > 0.0
                && input + weight > 0.0 =>
        {
            Ok(Costs { forward, input, weight, message })
        }
        _ => Err(format!(
            "--costs {text}: write four times, such as 1,1,1,0.2; passes take time, and none is negative or \
             above {LARGEST:e}"
        )),
    }
}

fn title(schedule: &Schedule, simulation: &Simulation) -> String {
    let name = schedule.kind.map_or("schedule", ScheduleKind::name);
    let (ranks, stages) = (schedule.ranks.len(), schedule.stages());
    format!(
        "{name}: {}, {}, {}; makespan {}, bubble {:.1} %",
        counted(ranks, "rank"),
        counted(stages, "stage"),
        counted(schedule.micro_batches, "micro-batch"),
        Short(simulation.makespan()),
        100.0 * simulation.bubble()
    )
}

/// A row per rank: time of work, and peaks of memory in chunks.
fn table(verified: &Verified, simulation: &Simulation) -> String {
    let mut text = format!(
        "{:<6}{:>8}{:>8}{:>14}{:>23}{:>18}\n",
        "rank", "work", "idle", "live chunks", "with pending weights", "pending receives"
    );
    for (rank, peak) in verified.peaks().iter().enumerate() {
        let work = simulation.work(rank);
        writeln!(
            text,
            "{rank:<6}{:>8}{:>8}{:>14}{:>23}{:>18}",
            Short(work),
            Short(simulation.makespan() - work),
            peak.live,
            peak.with_pending_weights,
            simulation.pending_receives[rank]
        )
        .expect("a string takes any text");
    }
    text
}

/// A number that is formatted with at most three decimals.
struct Short(f64);

impl std::fmt::Display for Short {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = format!("{:.3}", self.0);
        f.pad(text.trim_end_matches('0').trim_end_matches('.'))
    }
}
