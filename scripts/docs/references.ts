/** Checks what documents and comments refer to: links, headings, files, and names in files. */
import { dirname, join, normalize } from 'node:path'

/** Extensions of files that can only be ours. A `.yaml` or `.json` may be a user's. */
const OURS = /`([\w.-]+(?:\/[\w.-]+)*\.(?:ts|js|grit|md|svg))`/g
const LINK = /\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)/g
const NAMES_IN_FILE = /((?:`\w+`(?:,| and| or)?\s+)+)in\s+`([\w./-]+\.ts)`/g
const MENTION =
  /(?<![\w/-])((?:docs|protocol|server|client|router|test|load-tests)\/[\w/-]*\.md|(?:README|CONTRIBUTING|SECURITY)\.md)/g

/** What `file` refers to that does not exist. `tree` has all files of the checkout, path to text. */
export function brokenReferences(file: string, text: string, tree: ReadonlyMap<string, string>): string[] {
  return file.endsWith('.md') ? brokenInDocument(file, text, tree) : brokenInCode(file, text, tree)
}

function brokenInDocument(file: string, text: string, tree: ReadonlyMap<string, string>): string[] {
  const prose = text.replaceAll(/^ *```[\s\S]*?^ *```$/gm, '')
  const broken: string[] = []
  for (const [, path = '', heading] of prose.matchAll(LINK)) {
    const target = path === '' ? file : slashed(normalize(join(dirname(file), path)))
    if (!exists(target, tree)) broken.push(`${file} links to ${target}, which does not exist`)
    else if (heading !== undefined && !headingsOf(tree.get(target) ?? '').has(heading)) {
      broken.push(`${file} links to #${heading} of ${target}, which has no such heading`)
    }
  }
  for (const [, path = ''] of prose.matchAll(OURS)) {
    if (!isKnown(path, file, tree)) broken.push(`${file} names ${path}, which does not exist`)
  }
  for (const [, names = '', path = ''] of prose.matchAll(NAMES_IN_FILE)) {
    const texts = [...tree].filter(([each]) => each === path || each.endsWith(`/${path}`)).map(([, each]) => each)
    for (const [, name] of names.matchAll(/`(\w+)`/g)) {
      const isThere = texts.some(each => new RegExp(`\\b${name}\\b`).test(each))
      if (!isThere) broken.push(`${file}: there is no ${name} in ${path}`)
    }
  }
  return broken
}

/** Comments name documents relative to the root, or to their own folder. */
function brokenInCode(file: string, text: string, tree: ReadonlyMap<string, string>): string[] {
  const mentioned = [...text.matchAll(MENTION)].map(([, path]) => path!)
  return mentioned
    .filter(path => !tree.has(path) && !tree.has(slashed(join(dirname(file), path))))
    .map(path => `${file} names ${path}, which does not exist`)
}

/** Names are relative to the root, or the end of some path. In a document in the root, only the former counts. */
function isKnown(path: string, file: string, tree: ReadonlyMap<string, string>): boolean {
  if (tree.has(path) || tree.has(slashed(join(dirname(file), path)))) return true
  return file.includes('/') && [...tree.keys()].some(each => each.endsWith(`/${path}`))
}

function exists(path: string, tree: ReadonlyMap<string, string>): boolean {
  const folder = path.endsWith('/') ? path : `${path}/`
  return tree.has(path) || [...tree.keys()].some(each => each.startsWith(folder))
}

/** The anchors that repository hosts generate for headings. */
function headingsOf(text: string): Set<string> {
  const titles = [...text.matchAll(/^#+ (.*)$/gm)].map(([, title]) => title!)
  return new Set(
    titles.map(title =>
      title
        .toLowerCase()
        .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
        .replaceAll(' ', '-'),
    ),
  )
}

function slashed(path: string): string {
  return path.replaceAll('\\', '/')
}
