//! Files of tokens, made from files of text.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use meshwright_os::kind_of_special_file;
use meshwright_store::data::{DataInput, Encoding, Ids, TokensRecord};

use super::encode::Encoder;
use super::output_name::{check_output, check_width};
use super::source::without_flag;
use super::unfinished_file::UnfinishedFile;
use super::{TextDocuments, TokenizeError, Tokenizer};

/// Results of [`tokenize_files`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tokenized {
    /// Bytes of text.
    pub bytes: u64,
    /// Documents that have text.
    pub documents: u64,
    /// Tokens that were written, those after documents included.
    pub tokens: u64,
    /// The file to which the earlier content of the output was moved, if there was any.
    pub moved: Option<PathBuf>,
}

/// Tokenizes the files `inputs` (`-` is standard input) into `output`, one after the other, as little-endian ids of 16
/// or 32 bits. `progress` is called with the number of bytes of all inputs that are done.
///
/// Inputs are plain text, JSONL and Parquet, also inside of gzip and Zstandard. The tokenizer is recorded beside the
/// output ([`TokensRecord`]).
///
/// The output is written under another name, in the same folder, and renamed when it is complete. Earlier content of
/// the output is moved to `NAME.1` and so on. What a process that was ended has left of the same output is removed.
///
/// # Errors
/// An output that does not end in `.bin`, states another width by its name, or is an input; ids that `width` does not
/// hold, devices and sockets, files that cannot be read or written or are no text, and text that the tokenizer does not
/// take.
pub fn tokenize_files(
    tokenizer: &Tokenizer,
    inputs: &[PathBuf],
    documents: &TextDocuments,
    output: &Path,
    width: Encoding,
    progress: &mut dyn FnMut(u64),
) -> Result<Tokenized, TokenizeError> {
    check_output(output, inputs)?;
    check_width(tokenizer, output, width)?;
    let mut file = UnfinishedFile::create(output)?;
    let mut done = Tokenized { bytes: 0, documents: 0, tokens: 0, moved: None };
    let mut buffer = Ids::new(width);
    let encoder = Encoder::new(tokenizer, documents);
    let mut read = 0;
    for input in inputs {
        let before = read;
        let encoded = encoder.encode(
            open_input(input)?,
            &mut |bytes| {
                read = before + bytes;
                progress(read);
            },
            &mut |ids| {
                done.tokens += ids.len() as u64;
                buffer.clear();
                buffer.extend(ids);
                file.write_ids(buffer.bytes())
            },
        )?;
        done.bytes += encoded.bytes;
        done.documents += encoded.documents;
    }
    if done.bytes == 0 || done.tokens == 0 {
        let names: Vec<String> = inputs.iter().map(|path| path.display().to_string()).collect();
        return Err(TokenizeError::without_tokens(tokenizer.name(), names.join(", "), done.bytes));
    }
    done.moved = file.finish_file(&TokensRecord {
        tokens: done.tokens,
        dtype: width.dtype().to_owned(),
        vocab: tokenizer.vocab(),
        tokenizer: tokenizer.record(),
    })?;
    Ok(done)
}

/// Opens a file, a pipe or standard input (`-`).
///
/// # Errors
/// A file that cannot be opened or is no text, and devices and sockets, which may have no end. A terminal as standard
/// input has one.
fn open_input(input: &Path) -> Result<DataInput, TokenizeError> {
    if input != Path::new("-") {
        return DataInput::open(input, None).map_err(without_flag);
    }
    let io = |source| TokenizeError::Read { name: "-".to_owned(), source };
    let file = File::from(io::stdin().as_fd().try_clone_to_owned().map_err(io)?);
    match kind_of_special_file(file.metadata().map_err(io)?.file_type()) {
        Some(kind) if !io::stdin().is_terminal() => Err(io(io::Error::other(format!(
            "it is {kind}; write the text to a file, and name that"
        )))),
        _ => DataInput::of_stream(input, None, Box::new(file)).map_err(without_flag),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meshwright_store::data::TokenFile;

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Folder {
            Folder(tempfile::tempdir().unwrap())
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn write(&self, name: &str, text: &[u8]) -> PathBuf {
            std::fs::write(self.path(name), text).unwrap();
            self.path(name)
        }

        fn names(&self) -> Vec<String> {
            let entries = std::fs::read_dir(self.0.path()).unwrap();
            let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
            let mut names: Vec<_> = entries.map(|e| name(e).into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    fn separated(separator: &str, end: Option<u32>) -> TextDocuments {
        let separator = Some(separator.to_owned());
        TextDocuments { separator, end, ..TextDocuments::default() }
    }

    fn tokenize(
        inputs: &[PathBuf],
        documents: &TextDocuments,
        output: &Path,
        width: Encoding,
    ) -> Result<Tokenized, TokenizeError> {
        tokenize_files(&Tokenizer::Bytes, inputs, documents, output, width, &mut |_| ())
    }

    #[test]
    fn inputs_follow_one_another_and_documents_end() {
        let folder = Folder::new();
        let inputs = [folder.write("a.txt", b"ab;c;;"), folder.write("b.txt", b"d")];
        for (width, name) in [(Encoding::U16, "out.bin"), (Encoding::U32, "out.u32.bin")] {
            let output = folder.path(name);
            let mut shown = Vec::new();
            let done = tokenize_files(
                &Tokenizer::Bytes,
                &inputs,
                &separated(";", Some(7)),
                &output,
                width,
                &mut |bytes| shown.push(bytes),
            );
            let expected = Tokenized { bytes: 4, documents: 3, tokens: 7, moved: None };
            assert_eq!(done.unwrap(), expected);
            assert!(shown.is_sorted() && shown.last() == Some(&7), "{shown:?}");
            let file = TokenFile::open(&output, 256).unwrap();
            assert_eq!(file.encoding(), width);
            let mut ids = vec![0; file.len()];
            file.read(0, &mut ids).unwrap();
            assert_eq!(ids, [97, 98, 7, 99, 7, 100, 7]);
        }
        let records = ["out.bin.json", "out.u32.bin", "out.u32.bin.json"];
        assert_eq!(folder.names(), [&["a.txt", "b.txt", "out.bin"][..], &records].concat());
    }

    #[test]
    fn failures_keep_the_old_output() {
        let folder = Folder::new();
        let text = folder.write("a.txt", b"abc");
        let output = folder.write("out.bin", b"old!");
        let missing = folder.path("none.txt");
        let message = |inputs: &[PathBuf], output: &Path| {
            let done = tokenize(inputs, &TextDocuments::default(), output, Encoding::U16);
            done.unwrap_err().to_string()
        };
        let found = message(&[text.clone(), missing], &output);
        assert!(found.contains("cannot read") && found.contains("none.txt: No such"), "{found}");
        let found = message(&[folder.write("empty.txt", b"")], &output);
        assert!(found.contains("nothing to tokenize") && found.contains("empty.txt"), "{found}");
        let found = message(&[folder.0.path().to_owned()], &output);
        assert!(found.contains("cannot read") && found.contains("directory"), "{found}");
        let found = message(std::slice::from_ref(&text), &folder.path("no/out.bin"));
        assert!(found.contains("-o: there is no folder ") && found.contains("/no;"), "{found}");
        let found = message(std::slice::from_ref(&text), &folder.path("out.txt"));
        assert!(found.contains("out.txt must end in .bin"), "{found}");
        let found = message(&[text, output.clone()], &output);
        assert!(found.contains("out.bin is also an input"), "{found}");
        assert_eq!(std::fs::read(&output).unwrap(), b"old!");
        assert_eq!(folder.names(), ["a.txt", "empty.txt", "out.bin"]);
    }

    #[test]
    fn devices_are_refused() {
        let folder = Folder::new();
        let output = folder.path("out.bin");
        for device in ["/dev/zero", "/dev/urandom", "/dev/null"] {
            let inputs = [folder.write("a.txt", b"abc"), device.into()];
            let done = tokenize(&inputs, &TextDocuments::default(), &output, Encoding::U16);
            let found = done.unwrap_err().to_string();
            let expected =
                format!("cannot read {device}: it is a character device; write the text");
            assert!(found.contains(&expected), "{found}");
        }
        assert_eq!(folder.names(), ["a.txt"]);
    }

    /// The file of a killed process is removed; files of a running process and of other outputs stay.
    #[test]
    fn abandoned_files_are_removed() {
        let folder = Folder::new();
        let text = folder.write("a.txt", b"abc");
        folder.write(".out.bin.123456.partial", b"torn");
        let others = [".out.bin.1x.partial", ".out.bin.partial", ".a.out.bin.123456.partial"];
        others.iter().for_each(|name| drop(folder.write(name, b"other")));
        let running = UnfinishedFile::create(&folder.path("out.bin")).unwrap();
        assert!(!folder.names().contains(&".out.bin.123456.partial".to_owned()));
        let own = format!(".out.bin.{}.partial", std::process::id());
        std::fs::rename(folder.path(&own), folder.path(".out.bin.7.partial")).unwrap();
        let output = folder.path("out.bin");
        tokenize(&[text], &TextDocuments::default(), &output, Encoding::U16).unwrap();
        let mut expected = vec![".out.bin.7.partial", "a.txt", "out.bin", "out.bin.json"];
        expected.extend(others);
        expected.sort_unstable();
        assert_eq!(folder.names(), expected);
        drop(running);
    }

    #[cfg(feature = "tokenizers")]
    #[test]
    fn ids_that_do_not_fit_are_refused_first() {
        use super::super::test_tokenizer::{tokenizer_json, write};

        let folder = Folder::new();
        let text = folder.write("a.txt", b"abc");
        let mut json = tokenizer_json();
        json["model"]["vocab"]["zz"] = 65_536.into();
        let tokenizer = Tokenizer::open(&write(folder.0.path(), &json)).unwrap();
        let tokenize = |name: &str, width| {
            let (inputs, output) = ([text.clone()], folder.path(name));
            let documents = TextDocuments::default();
            tokenize_files(&tokenizer, &inputs, &documents, &output, width, &mut |_| ())
        };
        let found = tokenize("a.bin", Encoding::U16).unwrap_err().to_string();
        assert!(found.contains("has ids up to 65536; use --dtype u32"), "{found}");
        for width in [Encoding::U16, Encoding::U32] {
            let found = tokenize("a.u16.bin", width).unwrap_err().to_string();
            assert!(found.contains("a.u16.bin states ids of 16 bits, but"), "{found}");
            assert!(found.contains("has ids up to 65536; name it"), "{found}");
            assert!(found.ends_with("a.u32.bin"), "{found}");
        }
        tokenize("b.bin", Encoding::U32).unwrap();
        assert_eq!(folder.names(), ["a.txt", "b.bin", "b.bin.json", "tokenizer.json"]);
    }
}
