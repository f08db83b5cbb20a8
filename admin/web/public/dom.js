/** Builds elements with text nodes only, so that whatever a caller sent stays text. */

const SVG = 'http://www.w3.org/2000/svg'

/** @typedef {Node | string | undefined} Child */

/**
 * @param {string} name
 * @param {Record<string, string>} [attributes]
 * @param {readonly Child[]} children
 * @returns {HTMLElement}
 */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name)
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value)
  made.append(...children.filter(child => child !== undefined))
  return made
}

/**
 * @param {string} name
 * @param {Record<string, string>} attributes
 * @param {readonly Node[]} children
 */
export function drawing(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name)
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value)
  made.append(...children)
  return made
}

/** Control and direction characters, which could disguise text. */
const UNSEEN = /[\p{Cc}\p{Cf}\u2028\u2029]/gu

/**
 * Untrusted text, made safe to display.
 * @param {unknown} value
 */
export function plain(value) {
  if (value === undefined || value === null) return ''
  return String(value).replaceAll(UNSEEN, character => `\\u{${character.codePointAt(0)?.toString(16)}}`)
}

/**
 * @param {string} command
 */
export function copyable(command) {
  const button = element('button', { type: 'button' }, 'Copy')
  button.addEventListener('click', () => {
    navigator.clipboard.writeText(command).then(
      () => button.replaceChildren('Copied'),
      () => button.replaceChildren('Select it by hand'),
    )
  })
  return element('p', { class: 'command' }, element('code', {}, command), button)
}

/** @param {unknown} bytes */
export function size(bytes) {
  let left = Number(bytes) || 0
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB']
  let unit = 0
  while (left >= 1024 && unit < units.length - 1) {
    left /= 1024
    unit++
  }
  return `${unit === 0 ? left : left.toFixed(1)} ${units[unit]}`
}

/** @param {number | undefined} ms */
export function milliseconds(ms) {
  if (ms === undefined || ms === null) return ''
  if (ms < 1000) return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`
  return `${(ms / 1000).toFixed(1)} s`
}

/** How far the clock of this machine is ahead of the component's, in ms. */
let ahead = 0

/**
 * @param {number} ms the time at the component
 */
export function setClock(ms) {
  ahead = Date.now() - ms
}

/** The time by the clock of the component, which dates everything that is shown. */
export function now() {
  return Date.now() - ahead
}

/**
 * How long ago a time was, or how far off it is.
 * @param {unknown} time ISO 8601, or ms since 1970
 */
export function ago(time) {
  const ms = now() - new Date(/** @type {string | number} */ (time ?? '')).getTime()
  if (Number.isNaN(ms)) return ''
  const text = duration(Math.abs(ms) / 1000)
  return ms >= 0 ? `${text} ago` : `in ${text}`
}

/** @param {number} seconds */
export function duration(seconds) {
  if (seconds < 60) return `${Math.round(seconds)} s`
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`
  if (seconds < 172_800) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`
  return `${Math.floor(seconds / 86_400)} days`
}
