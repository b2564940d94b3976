//! What a container runs, and where.

use std::path::PathBuf;

use oci_spec::image::Config as ImageConfig;

use crate::cri::error::{CriError, Result};

/// Program and arguments. A command of the request replaces the image's entry point and its command;
/// arguments of the request replace the image's command only.
pub(super) fn args(
    command: &[String],
    args: &[String],
    image: &ImageConfig,
) -> Result<Vec<String>> {
    let of_image = |list: &Option<Vec<String>>| list.clone().unwrap_or_default();
    let (program, rest) = if command.is_empty() {
        let rest = if args.is_empty() { of_image(image.cmd()) } else { args.to_vec() };
        (of_image(image.entrypoint()), rest)
    } else {
        (command.to_vec(), args.to_vec())
    };
    let all = [program, rest].concat();
    match all.first() {
        Some(program) if !program.is_empty() => {}
        _ => {
            let reason = "no command: the image has neither entry point nor command, so the \
                          request must say what to run";
            return Err(CriError::invalid(reason));
        }
    }
    if all.iter().any(|arg| arg.contains('\0')) {
        return Err(CriError::invalid("command and args cannot contain NUL"));
    }
    Ok(all)
}

/// The working directory: the request's, or else the image's, or else the root.
pub(super) fn working_dir(request: &str, image: &ImageConfig) -> Result<PathBuf> {
    if request.contains('\0') {
        return Err(CriError::invalid("working_dir cannot contain NUL"));
    }
    if !request.is_empty() && !request.starts_with('/') {
        return Err(CriError::invalid(format!("working_dir {request:?} is not an absolute path")));
    }
    let of_image = image.working_dir().as_deref().unwrap_or_default();
    let chosen = if request.is_empty() { of_image } else { request };
    Ok(PathBuf::from("/").join(chosen))
}

#[cfg(test)]
mod tests {
    use oci_spec::image::ConfigBuilder;

    use super::*;

    fn list(words: &str) -> Vec<String> {
        words.split_whitespace().map(str::to_owned).collect()
    }

    fn image(entrypoint: &str, cmd: &str) -> ImageConfig {
        ConfigBuilder::default().entrypoint(list(entrypoint)).cmd(list(cmd)).build().unwrap()
    }

    #[track_caller]
    fn check(command: &str, given: &str, image: &ImageConfig, expected: &str) {
        assert_eq!(args(&list(command), &list(given), image).unwrap(), list(expected));
    }

    #[test]
    fn the_request_replaces_what_the_image_says() {
        let image = image("/entry -e", "cmd -c");
        check("", "", &image, "/entry -e cmd -c");
        check("", "args", &image, "/entry -e args");
        check("command", "", &image, "command");
        check("command", "args", &image, "command args");
    }

    #[test]
    fn a_container_needs_something_to_run() {
        let empty = ImageConfig::default();
        check("", "only args", &empty, "only args");
        assert!(args(&[], &[], &empty).unwrap_err().to_string().starts_with("no command"));
        assert!(args(&[String::new()], &[], &empty).is_err());
        assert!(args(&list("a"), &["b\0c".to_owned()], &empty).is_err());
    }

    #[test]
    fn the_working_directory_is_absolute() {
        let image = ConfigBuilder::default().working_dir("srv/app").build().unwrap();
        assert_eq!(working_dir("", &image).unwrap(), PathBuf::from("/srv/app"));
        assert_eq!(working_dir("/tmp", &image).unwrap(), PathBuf::from("/tmp"));
        assert_eq!(working_dir("", &ImageConfig::default()).unwrap(), PathBuf::from("/"));
        assert!(working_dir("tmp", &image).is_err());
    }
}
