import type { Run } from '../command.ts'
import { EXIT } from '../failure.ts'

const BASH = `_sallyport() {
  local words line
  words=("\${COMP_WORDS[@]:1:COMP_CWORD}")
  COMPREPLY=()
  while IFS= read -r line; do
    if [ "$line" = ':files' ]; then
      compopt -o default 2>/dev/null
      return
    fi
    COMPREPLY+=("\${line%%$'\\t'*}")
  done < <(sallyport completion words -- "\${words[@]}" 2>/dev/null)
}
complete -F _sallyport sallyport
`

const ZSH = `#compdef sallyport
_sallyport() {
  local line
  local -a found
  while IFS= read -r line; do
    if [[ $line == ':files' ]]; then
      _files
      return
    fi
    found+=("\${\${line%%$'\\t'*}//:/\\\\:}:\${line#*$'\\t'}")
  done < <(sallyport completion words -- "\${(@)words[2,$CURRENT]}" 2>/dev/null)
  _describe sallyport found
}
# From a folder of fpath, this file is the body of the function itself.
if [[ $funcstack[1] == _sallyport ]]; then
  _sallyport
else
  compdef _sallyport sallyport
fi
`

const FISH = `function __sallyport_words
  set -l words (commandline -opc) (commandline -ct)
  set -l found (sallyport completion words -- $words[2..-1] 2>/dev/null)
  if test "$found" = ':files'
    __fish_complete_path (commandline -ct)
  else
    string join \\n -- $found
  end
end
complete -c sallyport -f -a '(__sallyport_words)'
`

const script =
  (text: string): Run =>
  async (_, io) => {
    io.out(text)
    return EXIT.ok
  }

export const completionBash: Run = script(BASH)

export const completionZsh: Run = script(ZSH)

export const completionFish: Run = script(FISH)
