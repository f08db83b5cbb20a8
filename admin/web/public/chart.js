import { drawing, element } from './dom.js'

const [WIDTH, HEIGHT] = [300, 100]
/** Steps of 15 minutes. The newest one is at the right edge, however many there are. */
const STEPS = 180

/**
 * A line over time, and perhaps a second one, on the same scale from 0.
 * @param {string} title
 * @param {readonly (number | undefined)[]} first
 * @param {readonly (number | undefined)[]} second
 * @param {{ unit: (value: number) => string, names: readonly [string, string?], bad?: boolean }} options
 */
export function chart(title, first, second, { unit, names, bad = false }) {
  const values = [...first, ...second].filter(value => value !== undefined && value !== null)
  const highest = Math.max(...values, 0)
  const top = highest === 0 ? 1 : highest * 1.1
  const [now, more] = [first.findLast(isNumber), second.findLast(isNumber)]
  const said = [
    now === undefined ? '' : `${names[0]} ${unit(now)}`,
    names[1] === undefined || more === undefined ? '' : `${names[1]} ${unit(more)}`,
  ].filter(text => text !== '')
  const label = `${title}, last 15 minutes: ${said.join(', ') || 'nothing'}, highest ${unit(highest)}`
  return element(
    'figure',
    {},
    element(
      'figcaption',
      {},
      element('span', {}, title),
      element('span', { class: 'quiet' }, said.join(' · ') || 'nothing yet'),
    ),
    drawing(
      'svg',
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': label },
      drawing('path', { class: 'area', d: line(first, top, true) }),
      drawing('path', { class: 'first', d: line(first, top, false) }),
      drawing('path', { class: bad ? 'second bad' : 'second', d: line(second, top, false) }),
    ),
    element('figcaption', { class: 'quiet' }, element('span', {}, '15 min ago'), `highest ${unit(highest)}`),
  )
}

/** @param {number | undefined | null} value */
function isNumber(value) {
  return value !== undefined && value !== null
}

/**
 * A path through the existing points.
 * @param {readonly (number | undefined | null)[]} values
 * @param {number} top
 * @param {boolean} closed
 */
function line(values, top, closed) {
  let path = ''
  let start = ''
  values.forEach((value, index) => {
    const x = (((STEPS - values.length + index) / (STEPS - 1)) * WIDTH).toFixed(1)
    if (!isNumber(value)) {
      if (closed && start !== '') path += `V${HEIGHT}H${start}`
      start = ''
      return
    }
    const y = (HEIGHT - (Number(value) / top) * HEIGHT).toFixed(1)
    path += start === '' ? `M${x} ${closed ? `${HEIGHT}V` : ''}${y}` : `L${x} ${y}`
    if (start === '') start = x
  })
  return closed && start !== '' ? `${path}V${HEIGHT}` : path
}
