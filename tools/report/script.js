// Comfort only: one story at a time, copying, saving. Without it the report is whole, just longer.
'use strict';
const stories = [...document.querySelectorAll('.story')];
const picker = document.querySelector('.picker');
const select = document.getElementById('story');

function show(id) {
  if (!stories.some((story) => story.id === id)) return false;
  for (const story of stories) story.hidden = story.id !== id;
  select.value = id;
  document.getElementById('earlier').disabled = select.selectedIndex === 0;
  document.getElementById('later').disabled = select.selectedIndex === stories.length - 1;
  return true;
}

function goTo(index) {
  if (index >= 0 && index < stories.length) show(stories[index].id);
}

// A link to a story that is hidden: show it, then go there.
function followHash() {
  if (stories.length > 0 && show(location.hash.slice(1))) {
    document.getElementById('stories').scrollIntoView();
  }
}

if (stories.length > 0) {
  picker.hidden = false;
  select.addEventListener('change', () => show(select.value));
  document.getElementById('earlier').addEventListener('click', () => goTo(select.selectedIndex - 1));
  document.getElementById('later').addEventListener('click', () => goTo(select.selectedIndex + 1));
  show(stories[0].id);
  addEventListener('hashchange', followHash);
  if (location.hash) followHash();
}

// A mark in the picture and its line in the table light up together.
for (const story of stories) {
  const lines = story.querySelectorAll('tbody tr');
  story.querySelectorAll('g.mark').forEach((mark, i) => {
    mark.addEventListener('click', () => {
      lines.forEach((line, j) => line.classList.toggle('lit', i === j));
      lines[i].scrollIntoView({block: 'nearest'});
    });
  });
}

for (const button of document.querySelectorAll('[data-copy]')) {
  if (!navigator.clipboard) continue;
  button.hidden = false;
  button.addEventListener('click', async () => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    button.textContent = 'Copied';
    setTimeout(() => { button.textContent = 'Copy'; }, 1500);
  });
}

const save = document.getElementById('save');
save.hidden = false;
save.addEventListener('click', () => {
  const text = document.getElementById('report-data').textContent.trim() + '\n';
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text], {type: 'application/json'}));
  link.download = 'report.json';
  link.click();
  URL.revokeObjectURL(link.href);
});
