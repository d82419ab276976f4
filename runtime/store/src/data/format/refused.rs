//! Kinds of files that are no data, with the next step.

use std::path::Path;

use super::super::lfs::{IS_LFS_POINTER, is_lfs_pointer};
use super::has_extension;

/// A kind of file that is known by bytes at a place.
struct RefusedKind {
    at: usize,
    magic: &'static [u8],
    /// The kind with its article, and the next step; `{}` is the path.
    advice: &'static str,
}

const fn kind(at: usize, magic: &'static [u8], advice: &'static str) -> RefusedKind {
    RefusedKind { at, magic, advice }
}

const UNPACK_TAR: &str =
    "a tar archive (WebDataset shards are such); unpack it, and give the text in it: tar -xf {}";
const ARROW: &str = "an Arrow file; convert it to Parquet: python -c \"import datasets; \
                     datasets.Dataset.from_file('{}').to_parquet('out.parquet')\", or for Feather \
                     pandas.read_feather('{}').to_parquet('out.parquet')";
const PICKLE: &str = "a pickle of Python, or an old PyTorch file; load it in Python, and write the ids: \
                      numpy.asarray(ids, dtype='uint32').tofile('out.u32.bin'), or the texts as JSONL";
const IMAGE: &str = "an image; give text or token ids";
const SOUND: &str = "a sound or a film; give text or token ids";
const PROGRAM: &str = "a program; give text or token ids";
const UTF_16: &str = "UTF-16 text; convert it: iconv -f UTF-16 -t UTF-8 {} -o out.txt";
const UTF_32: &str = "UTF-32 text; convert it: iconv -f UTF-32 -t UTF-8 {} -o out.txt";
const HTML: &str = "an HTML page, probably the error of a download; download the file again, or name it .html if the \
                    page is the text";

/// Kinds whose first bytes no token ids or text have by chance.
const STRONG: &[RefusedKind] = &[
    kind(
        0,
        b"\x89HDF\r\n\x1a\n",
        "an HDF5 file; write its ids in Python: h5py.File('{}')[KEY][:].astype('uint32')\
                                   .tofile('out.u32.bin')",
    ),
    kind(0, b"ARROW1", ARROW),
    kind(0, b"FEA1", ARROW),
    kind(0, b"PARE", "an encrypted Parquet file; decrypt it first"),
    kind(
        0,
        b"SQLite format 3\0",
        "an SQLite database; write its text: sqlite3 -json {} 'SELECT text FROM TABLE' | jq \
                                   -c '.[]' > out.jsonl",
    ),
    kind(0, b"%PDF-", "a PDF document; extract its text: pdftotext {} out.txt"),
    kind(0, b"\xfd7zXZ\0", "compressed by xz; unpack it: xz -dk {}"),
    kind(0, b"\x04\x22\x4d\x18", "compressed by lz4; unpack it: lz4 -d {}"),
    kind(0, b"LZIP", "compressed by lzip; unpack it: lzip -dk {}"),
    kind(0, b"\xff\x06\0\0sNaPpY", "compressed by Snappy; unpack it: snzip -dk {}"),
    kind(0, b"7z\xbc\xaf\x27\x1c", "a 7z archive; unpack it: 7z x {}"),
    kind(0, b"Rar!\x1a\x07", "a RAR archive; unpack it: unrar x {}"),
    kind(257, b"ustar", UNPACK_TAR),
    kind(0, b"\x7fELF", PROGRAM),
    kind(0, b"\x89PNG\r\n\x1a\n", IMAGE),
    kind(0, b"GIF87a", IMAGE),
    kind(0, b"GIF89a", IMAGE),
    kind(0, b"II*\0", IMAGE),
    kind(0, b"MM\0*", IMAGE),
    kind(0, b"RIFF", SOUND),
    kind(0, b"OggS", SOUND),
    kind(0, b"fLaC", SOUND),
    kind(4, b"ftypisom", SOUND),
    kind(4, b"ftypmp4", SOUND),
    kind(
        0,
        b"GGUF",
        "a GGUF file, which holds weights; give text or token ids, and weights by --init-from as a Hugging \
                      Face folder",
    ),
    kind(0, b"Obj\x01", "an Avro file; convert it to Parquet or JSONL"),
    kind(
        0,
        b"ORC",
        "an ORC file; convert it to Parquet: pyarrow.parquet.write_table(pyarrow.orc.read_table('{}'), \
                     'out.parquet')",
    ),
    kind(0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Office document; save it as plain text"),
    kind(16, b"\xde\xc0\xef\xbe", "an LMDB database; write its ids or texts to a file"),
    kind(
        0,
        b"TNTIDX\0\0",
        "an index of the old fairseq format; preprocess the data again by Megatron, which writes \
                            MMIDIDX",
    ),
    kind(
        0,
        b"\x8a\xd8\x34\x01",
        "an evaluation file of llm.c, which is no plain text; give a training file",
    ),
    kind(0, b"\xc6\xd7\x34\x01", "a file of weights of llm.c; give text or token ids"),
    kind(0, b"(lp0\n", PICKLE),
    kind(0, b"(dp0\n", PICKLE),
];

/// Kinds with few first bytes, which token ids may begin with: looked for if neither name nor flag states ids.
const WEAK: &[RefusedKind] = &[
    kind(0, b"\xff\xfe\0\0", UTF_32),
    kind(0, b"\0\0\xfe\xff", UTF_32),
    kind(0, b"\xff\xfe", UTF_16),
    kind(0, b"\xfe\xff", UTF_16),
    kind(0, b"\xff\xff\xff\xff", ARROW),
    kind(0, b"\xff\xd8\xff", IMAGE),
    kind(0, b"BM", IMAGE),
    kind(0, b"ID3", SOUND),
    kind(0, b"MZ", PROGRAM),
    kind(0, b"\x1f\x9d", "compressed by compress; unpack it: uncompress {}"),
    kind(0, b"\x80\x02", PICKLE),
    kind(0, b"\x80\x03", PICKLE),
    kind(0, b"\x80\x04", PICKLE),
    kind(0, b"\x80\x05", PICKLE),
];

/// Kinds that are known by the name of a binary file.
const NAMED: &[(&str, &str)] = &[
    (
        "mds",
        "a MosaicML shard; write its samples in Python (streaming.StreamingDataset) as JSONL or ids",
    ),
    ("tfrecord", TF_RECORD),
    ("tfrecords", TF_RECORD),
    (
        "ds",
        "probably a token file of datatrove or nanotron, which states no width; give --token-dtype u16 or u32",
    ),
    ("idx", "no index of Megatron; name the file of ids"),
    ("pt", PICKLE),
    ("pkl", PICKLE),
    ("arrow", ARROW),
    ("parquet", DAMAGED),
    ("npy", DAMAGED),
    ("gz", DAMAGED),
    ("zst", DAMAGED),
    ("xz", DAMAGED),
];

const DAMAGED: &str = "damaged, as it does not begin like a file of its name; get the file again";
const TF_RECORD: &str =
    "a TFRecord file; write its examples in Python (tensorflow or tfrecord) as JSONL or ids";

/// Returns the kind of a file that no token ids or text begin like, with the next step.
pub fn strong_kind(path: &Path, head: &[u8]) -> Option<String> {
    if is_lfs_pointer(head) {
        return Some(IS_LFS_POINTER.to_owned());
    }
    let advice = if head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06") {
        zip_kind(head)
    } else if is_safetensors(head) {
        "a safetensors file, which holds weights; give text or token ids, and weights by --init-from DIR"
    } else if head.starts_with(b"BZh") && head.get(4..10) == Some(b"\x31\x41\x59\x26\x53\x59") {
        "compressed by bzip2; unpack it: bunzip2 -k {}"
    } else if is_html(head) && !has_extension(path, &["html", "htm", "xhtml"]) {
        HTML
    } else {
        find_kind(STRONG, head)?
    };
    Some(say(path, advice))
}

/// Returns the kind of a file with a beginning that token ids may have, with the next step.
pub fn weak_kind(path: &Path, head: &[u8]) -> Option<String> {
    let is_binary = head.contains(&0) || std::str::from_utf8(&head[..head.len().min(4)]).is_err();
    find_kind(WEAK, head).filter(|_| is_binary).map(|advice| say(path, advice))
}

/// Describes a table by its name. One of its columns may be the text.
pub fn table_kind(path: &Path) -> Option<String> {
    has_extension(path, &["csv", "tsv"]).then(|| {
        let separator = if has_extension(path, &["tsv"]) { ", sep='\\t'" } else { "" };
        say(
            path,
            &format!(
                "a table; write its texts as JSONL, and name their column by --text-key: python -c \"import pandas; \
                 pandas.read_csv('{{}}'{separator}).to_json('out.jsonl', orient='records', lines=True)\", or rename it \
                 to .txt to train on all of it"
            ),
        )
    })
}

/// Describes a binary file by its name, if no content shows its kind.
pub fn named_kind(path: &Path) -> Option<String> {
    let named = NAMED.iter().find(|(extension, _)| has_extension(path, &[extension]));
    named.map(|(_, advice)| say(path, advice))
}

fn find_kind(kinds: &'static [RefusedKind], head: &[u8]) -> Option<&'static str> {
    let is_at =
        |kind: &&RefusedKind| head.get(kind.at..).is_some_and(|head| head.starts_with(kind.magic));
    kinds.iter().find(is_at).map(|kind| kind.advice)
}

fn say(path: &Path, advice: &str) -> String {
    format!("it is {}", advice.replace("{}", &path.display().to_string()))
}

/// Returns the kind of a zip archive by the name of its first entry.
fn zip_kind(head: &[u8]) -> &'static str {
    let len = head.get(26..28).map_or(0, |len| usize::from(u16::from_le_bytes([len[0], len[1]])));
    let name = head.get(30..30 + len).unwrap_or_default();
    let is_torch = |end: &[u8]| name.ends_with(end);
    if name.ends_with(b".npy") {
        "an .npz archive of numpy; write one array of it: python -c \"import numpy; numpy.save('out.npy', \
         numpy.load('{}')[KEY])\""
    } else if is_torch(b"/data.pkl") || is_torch(b"/.format_version") || is_torch(b"/byteorder") {
        "a PyTorch file; write its ids: python -c \"import torch; \
         torch.load('{}').numpy().astype('uint32').tofile('out.u32.bin')\""
    } else if name == b"[Content_Types].xml" {
        "an Office document; save it as plain text"
    } else {
        "a zip archive; unpack it, and give the file in it: unzip {}"
    }
}

/// Returns true for the length of a JSON header, and its beginning.
fn is_safetensors(head: &[u8]) -> bool {
    let Some((len, header)) = head.split_first_chunk::<8>() else { return false };
    let len = u64::from_le_bytes(*len);
    (2..1 << 30).contains(&len) && header.starts_with(b"{\"")
}

/// Returns true for the beginning of an HTML page, and of the XML in which object stores report errors.
fn is_html(head: &[u8]) -> bool {
    let start = String::from_utf8_lossy(&head[..head.len().min(1024)]).to_ascii_lowercase();
    let start = start.trim_start_matches('\u{feff}').trim_start();
    let is_store_error = start.starts_with("<?xml") && start.contains("<error>");
    start.starts_with("<!doctype html") || start.starts_with("<html") || is_store_error
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind_of(name: &str, head: &[u8]) -> Option<String> {
        let path = Path::new(name);
        strong_kind(path, head).or_else(|| weak_kind(path, head))
    }

    #[test]
    fn kinds_are_named_with_the_next_step() {
        let zip = |name: &str| {
            let mut head = b"PK\x03\x04".to_vec();
            head.resize(26, 0);
            head.extend((name.len() as u16).to_le_bytes());
            head.extend([0; 2]);
            head.extend(name.bytes());
            head
        };
        let mut tar = vec![0; 512];
        tar[257..262].copy_from_slice(b"ustar");
        let safetensors = [&40u64.to_le_bytes()[..], br#"{"a":{"dtype":"F32"}}"#].concat();
        for (head, parts) in [
            (zip("arr_0.npy"), ["an .npz archive", "numpy.load('x.dat')[KEY]"]),
            (zip("model/data.pkl"), ["a PyTorch file", "torch.load('x.dat')"]),
            (zip("a.txt"), ["a zip archive", "unzip x.dat"]),
            (zip("[Content_Types].xml"), ["an Office document", "plain text"]),
            (tar, ["a tar archive", "tar -xf x.dat"]),
            (safetensors, ["a safetensors file", "--init-from"]),
            (b"\xfd7zXZ\0".to_vec(), ["compressed by xz", "xz -dk x.dat"]),
            (b"BZh91AY&SY".to_vec(), ["compressed by bzip2", "bunzip2 -k x.dat"]),
            (b"%PDF-1.4".to_vec(), ["a PDF", "pdftotext"]),
            (b"  <!DOCTYPE HTML>".to_vec(), ["an HTML page", "download"]),
            (b"<?xml version=\"1.0\"?><Error><Code>".to_vec(), ["an HTML page", "download"]),
            (b"\xff\xfeh\0i\0".to_vec(), ["UTF-16 text", "iconv -f UTF-16 -t UTF-8 x.dat"]),
            (b"\x80\x04\x95\x01".to_vec(), ["a pickle", "Python"]),
            (b"GGUF\x03".to_vec(), ["a GGUF file", "weights"]),
        ] {
            let found = kind_of("x.dat", &head).unwrap();
            assert!(
                found.starts_with("it is ") && parts.iter().all(|part| found.contains(part)),
                "{found}"
            );
        }
        for text in [
            "",
            "BM25 is a ranking function.",
            "MZ is a mark.",
            "ID3 is no text?",
            "PK",
            "<p>html</p>",
        ] {
            assert_eq!(kind_of("x.txt", text.as_bytes()), None, "{text}");
        }
        assert_eq!(kind_of("page.html", b"<!DOCTYPE html><p>text"), None);
    }
}
